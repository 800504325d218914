// Slices of one track -> packets of Perfetto's trace format.
//
// `lanes`: one sweep in the order in which slices open, with a stack of open ends a lane; a slice goes to the first
// lane in which it crosses none that is open. `Packets`: those of one lane, a block at a time, so that a block is still
// in the CPU's cache when it is written. The same lanes, and messages that say the same, as `portable_packets` gives;
// numbers take as few bytes as they can here.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace {

// Of what is in the module: raised when that changes, so that no other sources use this build.
constexpr long interface_number = 2;

constexpr std::size_t longest_varint = 10;
constexpr std::size_t block_bytes = 256 << 10;

struct PythonError {};  // one that is left set

char* put_varint(char* out, std::uint64_t value) {
  while (value > 0x7f) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

// What is said again and again: short enough to be copied at once, with what happens to stand behind it.
class Phrase {
 public:
  static constexpr std::size_t longest = 16;

  Phrase() = default;
  explicit Phrase(std::string_view text) : size_(text.size()) {
    if (text.size() > longest) throw std::invalid_argument("a tag is too long");
    std::memcpy(text_, text.data(), text.size());
  }
  std::size_t size() const { return size_; }
  char* put(char* out) const {
    std::memcpy(out, text_, longest);
    return out + size_;
  }

 private:
  char text_[longest] = {};
  std::size_t size_ = 0;
};

// ---- What Python hands in; the memory stays its own.

class Buffer {
 public:
  Buffer() = default;
  Buffer(PyObject* object, Py_ssize_t item_bytes) {
    if (PyObject_GetBuffer(object, &view_, PyBUF_ND) != 0) throw PythonError();  // ND: contiguous
    if (view_.ndim != 1 || view_.itemsize != item_bytes) {
      PyBuffer_Release(&view_);
      throw std::invalid_argument("a column has other items");
    }
    size_ = static_cast<std::size_t>(view_.len / view_.itemsize);
  }
  Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})), size_(other.size_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }  // of an empty one: nothing

  std::size_t size() const { return size_; }
  bool given() const { return view_.obj != nullptr; }
  template <typename T>
  T at(std::size_t place) const {
    if (place >= size_) throw std::invalid_argument("a row that a column does not have");
    return static_cast<const T*>(view_.buf)[place];
  }
  std::string_view bytes(std::uint64_t start, std::uint64_t size) const {
    if (start > size_ || size > size_ - start) throw std::invalid_argument("a row of bytes that are not there");
    return {static_cast<const char*>(view_.buf) + start, static_cast<std::size_t>(size)};
  }

 private:
  Py_buffer view_{};
  std::size_t size_ = 0;
};

Buffer optional(PyObject* object, Py_ssize_t item_bytes) {
  return object == Py_None ? Buffer() : Buffer(object, item_bytes);
}

std::string_view bytes_of(PyObject* object) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(object, &data, &size) != 0) throw PythonError();
  return {data, static_cast<std::size_t>(size)};
}

// A field of the beginnings of slices: a number behind `tag`; all of it inside of a message behind `around`, if that is
// given. A column of ids stands for `numbers`, of which 0 is none, as is a 0 that is written as it is (fixed64).
struct Field {
  Phrase around, tag;
  Buffer values, numbers, present;
  bool is_fixed64;

  bool value_of(std::size_t row, std::uint64_t& value) const {
    if (present.given() && !present.at<bool>(row)) return false;
    if (numbers.given()) {
      const auto id = values.at<std::int32_t>(row);
      value = id < 0 ? 0 : numbers.at<std::uint64_t>(static_cast<std::size_t>(id));
      return value != 0;
    }
    value = values.at<std::uint64_t>(row);
    return !is_fixed64 || value != 0;
  }

  char* put(char* out, std::uint64_t value) const {
    if (is_fixed64) {
      out = tag.put(out);
      for (int byte = 0; byte < 8; ++byte) *out++ = static_cast<char>(value >> 8 * byte);
      return out;
    }
    if (around.size() == 0) return put_varint(tag.put(out), value);
    char* length = around.put(out);  // of one byte: what follows is shorter than 128
    char* end = put_varint(tag.put(length + 1), value);
    *length = static_cast<char>(end - length - 1);
    return end;
  }
};

constexpr std::size_t longest_field = 2 * Phrase::longest + 1 + longest_varint;

Field field_of(PyObject* item) {
  PyObject *around, *tag, *values, *numbers, *present;
  int is_fixed64;
  if (!PyArg_ParseTuple(item, "SSOOOp", &around, &tag, &values, &numbers, &present, &is_fixed64)) {
    throw PythonError();
  }
  const Py_ssize_t item_bytes = numbers == Py_None ? sizeof(std::uint64_t) : sizeof(std::int32_t);
  return {Phrase(bytes_of(around)),
          Phrase(bytes_of(tag)),
          Buffer(values, item_bytes),
          optional(numbers, sizeof(std::uint64_t)),
          optional(present, sizeof(bool)),
          is_fixed64 != 0};
}

// What stands behind the fields of a slice, encoded before: each row has the id of some bytes of `content`, or -1.
struct Details {
  Buffer ids, starts, sizes, content;
  std::size_t longest = 0;

  std::string_view of_row(std::size_t row) const {
    const auto id = ids.given() ? ids.at<std::int32_t>(row) : -1;
    if (id < 0) return {};
    const auto at = static_cast<std::size_t>(id);
    return content.bytes(starts.at<std::uint64_t>(at), sizes.at<std::uint64_t>(at));
  }
};

Details details_of(PyObject* item) {
  if (item == Py_None) return {};
  PyObject *ids, *starts, *sizes, *content;
  if (!PyArg_ParseTuple(item, "OOOO", &ids, &starts, &sizes, &content)) throw PythonError();
  Details details{Buffer(ids, sizeof(std::int32_t)), Buffer(starts, sizeof(std::int64_t)),
                  Buffer(sizes, sizeof(std::int64_t)), Buffer(content, 1)};
  for (std::size_t id = 0; id < details.sizes.size(); ++id) {
    const auto size = static_cast<std::size_t>(details.sizes.at<std::uint64_t>(id));
    details.longest = std::max(details.longest, std::min(size, details.content.size()));
  }
  return details;
}

// ---- What goes out.

// What all packets have. An event's own length is written behind `event`.
struct Frame {
  Phrase packet, time, event, begin, end;

  static constexpr std::size_t longest = 3 * Phrase::longest + 3 * longest_varint;

  // `content`: of `size` bytes, in a place with room for whole words; so is what `out` points to, for `longest` and
  // `details` more, which is the rest of the event.
  char* put(char* out, std::int64_t time_ns, const char* content, std::size_t size,
            std::string_view details = {}) const {
    // The time stands where it will be if the packet's length takes one byte, as is usual.
    char* const body = packet.put(out) + 1;
    char* next = put_varint(time.put(body), static_cast<std::uint64_t>(time_ns));
    next = put_varint(event.put(next), size + details.size());
    const std::size_t length = static_cast<std::size_t>(next - body) + size + details.size();
    if (length < 0x80) {
      body[-1] = static_cast<char>(length);
    } else {
      char text[longest_varint];
      const auto more = put_varint(text, length) - text - 1;
      std::memmove(body + more, body, static_cast<std::size_t>(next - body));
      std::memcpy(body - 1, text, static_cast<std::size_t>(more) + 1);
      next += more;
    }
    for (std::size_t done = 0; done < size; done += word) std::memcpy(next + done, content + done, word);
    if (!details.empty()) std::memcpy(next + size, details.data(), details.size());
    return next + size + details.size();
  }

  static constexpr std::size_t word = 16;
};

// ---- Packets of one lane

class Lane {
 public:
  Lane(Buffer order, Buffer start, Buffer duration, Buffer rows, std::vector<Field> fields, Details details,
       Frame frame)
      : order_(std::move(order)),
        start_(std::move(start)),
        duration_(std::move(duration)),
        rows_(std::move(rows)),
        fields_(std::move(fields)),
        details_(std::move(details)),
        frame_(frame),
        content_(Phrase::longest + fields_.size() * longest_field + Frame::word) {}

  bool done() const { return next_ == order_.size() && open_ends_.empty(); }
  std::size_t longest_packet() const { return Frame::longest + content_.size() + Frame::word + details_.longest; }

  // The next packet: of a slice that ends before another opens, or of that one.
  char* put(char* out) {
    const bool opens = next_ < order_.size();
    const auto slice = opens ? static_cast<std::size_t>(order_.at<std::int32_t>(next_)) : 0;  // -1 is beyond all
    const auto start_ns = opens ? start_.at<std::int64_t>(slice) : INT64_MAX;
    if (!open_ends_.empty() && open_ends_.back() <= start_ns) {
      const auto end_ns = open_ends_.back();
      open_ends_.pop_back();
      const char* const end = frame_.end.put(content_.data());
      return frame_.put(out, end_ns, content_.data(), static_cast<std::size_t>(end - content_.data()));
    }
    ++next_;
    const auto row = rows_.given() ? static_cast<std::size_t>(rows_.at<std::int32_t>(slice)) : slice;
    open_ends_.push_back(start_ns + duration_.at<std::int64_t>(slice));
    char* end = frame_.begin.put(content_.data());
    for (const Field& field : fields_) {
      std::uint64_t value;
      if (field.value_of(row, value)) end = field.put(end, value);
    }
    return frame_.put(out, start_ns, content_.data(), static_cast<std::size_t>(end - content_.data()),
                      details_.of_row(row));
  }

 private:
  Buffer order_, start_, duration_, rows_;
  std::vector<Field> fields_;
  Details details_;
  Frame frame_;
  std::vector<char> content_;  // of one event
  std::size_t next_ = 0;
  std::vector<std::int64_t> open_ends_;
};

struct PacketsObject {
  PyObject_HEAD
  Lane* lane;
};

// Calls `make`, and turns what it throws into an error of Python's.
template <typename Make>
PyObject* guarded(Make make) {
  try {
    return make();
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

PyObject* packets_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"order", "start_ns", "duration_ns", "rows", "fields", "details", "frame", nullptr};
  PyObject *order, *start, *duration, *rows, *items, *details, *parts;
  PyObject *packet, *time, *event, *begin, *end;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOOO!OO!", const_cast<char**>(names), &order, &start,
                                   &duration, &rows, &PyList_Type, &items, &details, &PyTuple_Type, &parts) ||
      !PyArg_ParseTuple(parts, "SSSSS", &packet, &time, &event, &begin, &end)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    const Frame frame{Phrase(bytes_of(packet)), Phrase(bytes_of(time)), Phrase(bytes_of(event)),
                      Phrase(bytes_of(begin)), Phrase(bytes_of(end))};
    std::vector<Field> fields;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items); ++k) fields.push_back(field_of(PyList_GET_ITEM(items, k)));
    auto lane = std::make_unique<Lane>(Buffer(order, sizeof(std::int32_t)), Buffer(start, sizeof(std::int64_t)),
                                       Buffer(duration, sizeof(std::int64_t)), optional(rows, sizeof(std::int32_t)),
                                       std::move(fields), details_of(details), frame);
    auto* self = reinterpret_cast<PacketsObject*>(type->tp_alloc(type, 0));
    if (self != nullptr) self->lane = lane.release();
    return reinterpret_cast<PyObject*>(self);
  });
}

void packets_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<PacketsObject*>(self)->lane;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* packets_next(PyObject* self) {
  Lane& lane = *reinterpret_cast<PacketsObject*>(self)->lane;
  if (lane.done()) return nullptr;
  PyObject* block = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(block_bytes + lane.longest_packet()));
  if (block == nullptr) return nullptr;
  char* const begun = PyBytes_AS_STRING(block);
  char* out = begun;
  PyObject* written = guarded([&] {
    while (!lane.done() && out < begun + block_bytes) out = lane.put(out);
    return block;
  });
  if (written == nullptr) {
    Py_DECREF(block);
    return nullptr;
  }
  _PyBytes_Resize(&block, out - begun);
  return block;
}

PyType_Slot packets_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(packets_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(packets_dealloc)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(packets_next)},
    {Py_tp_doc,
     const_cast<char*>(
         "Packets(order, start_ns, duration_ns, rows, fields, details, frame): of one lane, as blocks of bytes.\n\n"
         "order: int32, its slices in the order in which they open, the outer first; rows: int32 or None, where the\n"
         "columns of fields have what each slice says; fields: a list of (around, tag, values, numbers, present,\n"
         "is_fixed64); details: None, or (ids, starts, sizes, content), where an id's bytes are that stand behind the\n"
         "fields; frame: the tags of a packet and of its time, what follows that up to the tag of its event, and\n"
         "what an event says that begins and that ends a slice. Raises ValueError, also while it is iterated: columns\n"
         "that do not fit together.")},
    {0, nullptr},
};
PyType_Spec packets_spec = {"tracekit.render.perfetto._encoder.Packets", sizeof(PacketsObject), 0, Py_TPFLAGS_DEFAULT,
                            packets_slots};

// ---- Lanes

std::int32_t first_fit(std::vector<std::vector<std::int64_t>>& open_ends, std::int64_t start_ns, std::int64_t end_ns,
                       std::size_t max_depth) {
  std::int32_t number = 0;
  for (auto& ends : open_ends) {
    while (!ends.empty() && ends.back() <= start_ns) ends.pop_back();
    if (ends.size() < max_depth && (ends.empty() || end_ns <= ends.back())) break;
    ++number;
  }
  if (static_cast<std::size_t>(number) == open_ends.size()) open_ends.emplace_back();
  open_ends[static_cast<std::size_t>(number)].push_back(end_ns);
  return number;
}

PyObject* lanes(PyObject*, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"order", "start_ns", "duration_ns", "max_depth", nullptr};
  PyObject *order, *start, *duration;
  Py_ssize_t max_depth;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOn", const_cast<char**>(names), &order, &start, &duration,
                                   &max_depth)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    const Buffer opening(order, sizeof(std::int32_t));
    const Buffer starts(start, sizeof(std::int64_t)), durations(duration, sizeof(std::int64_t));
    if (max_depth < 1) throw std::invalid_argument("a lane holds one slice at least");
    std::vector<std::int32_t> found(opening.size());
    std::vector<std::vector<std::int64_t>> open_ends;
    for (std::size_t k = 0; k < found.size(); ++k) {
      const auto slice = static_cast<std::size_t>(opening.at<std::int32_t>(k));
      const auto start_ns = starts.at<std::int64_t>(slice);
      found[k] = first_fit(open_ends, start_ns, start_ns + durations.at<std::int64_t>(slice),
                           static_cast<std::size_t>(max_depth));
    }
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(found.data()),
                                     static_cast<Py_ssize_t>(found.size() * sizeof(std::int32_t)));
  });
}

PyMethodDef methods[] = {
    {"lanes", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(lanes)), METH_VARARGS | METH_KEYWORDS,
     "lanes(order, start_ns, duration_ns, max_depth): the lane of each slice, in their order, as the bytes of int32."},
    {nullptr, nullptr, 0, nullptr},
};

int execute(PyObject* module) {
  PyObject* packets_type = PyType_FromSpec(&packets_spec);
  const int added = packets_type == nullptr ? -1 : PyModule_AddObjectRef(module, "Packets", packets_type);
  Py_XDECREF(packets_type);
  if (added != 0) return -1;
  return PyModule_AddIntConstant(module, "INTERFACE", interface_number);
}

PyModuleDef_Slot module_slots[] = {{Py_mod_exec, reinterpret_cast<void*>(execute)}, {0, nullptr}};
PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_encoder", "Slices to packets.", 0, methods, module_slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__encoder() { return PyModuleDef_Init(&module_definition); }
