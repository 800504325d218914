// Slices of one track -> packets of Perfetto's trace format, a bytearray for each lane that they need.
//
// One sweep in the order in which slices open, with a stack of open ends a lane: a slice goes to the first lane in which
// it crosses none that is open. The same lanes, and messages that say the same, as `portable_packets` gives; numbers
// take as few bytes as they can here.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace {

// Of `encode` and what it gives: raised when that changes, so that no other sources use this build.
constexpr long interface_number = 1;

constexpr std::size_t longest_varint = 10;

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
// given. A column of ids stands for `numbers`, of which 0 is none, as is a 0 that is written as it is (fixed64). `place`:
// where in the column the value of each row is, or -1.
struct Field {
  Phrase around, tag;
  Buffer values, numbers, present, place;
  bool is_fixed64;

  bool value_of(std::size_t row, std::uint64_t& value) const {
    std::size_t at = row;
    if (place.given()) {
      const auto told = place.at<std::int32_t>(row);
      if (told < 0) return false;
      at = static_cast<std::size_t>(told);
    }
    if (present.given() && !present.at<bool>(at)) return false;
    if (numbers.given()) {
      const auto id = values.at<std::int32_t>(at);
      value = id < 0 ? 0 : numbers.at<std::uint64_t>(static_cast<std::size_t>(id));
      return value != 0;
    }
    value = values.at<std::uint64_t>(at);
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
  PyObject *around, *tag, *values, *numbers, *present, *place;
  int is_fixed64;
  if (!PyArg_ParseTuple(item, "SSOOOOp", &around, &tag, &values, &numbers, &present, &place, &is_fixed64)) {
    throw PythonError();
  }
  const Py_ssize_t item_bytes = numbers == Py_None ? sizeof(std::uint64_t) : sizeof(std::int32_t);
  return {Phrase(bytes_of(around)),
          Phrase(bytes_of(tag)),
          Buffer(values, item_bytes),
          optional(numbers, sizeof(std::uint64_t)),
          optional(present, sizeof(bool)),
          optional(place, sizeof(std::int32_t)),
          is_fixed64 != 0};
}

// ---- What goes out.

// Bytes that grow, in memory of a bytearray.
class Bytes {
 public:
  Bytes() : object_(PyByteArray_FromStringAndSize(nullptr, 0)) {
    if (object_ == nullptr) throw PythonError();
  }
  Bytes(Bytes&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), used_(other.used_), room_(other.room_) {}
  Bytes& operator=(Bytes&&) = delete;
  ~Bytes() { Py_XDECREF(object_); }

  // Where the next bytes go; `wrote` says to where they went.
  char* room_for(std::size_t bytes) {
    if (room_ - used_ < bytes) resize(2 * room_ + bytes + (64 << 10));
    return PyByteArray_AS_STRING(object_) + used_;
  }
  void wrote(const char* end) { used_ = static_cast<std::size_t>(end - PyByteArray_AS_STRING(object_)); }

  PyObject* release() {
    resize(used_);
    return std::exchange(object_, nullptr);
  }

 private:
  void resize(std::size_t bytes) {
    if (PyByteArray_Resize(object_, static_cast<Py_ssize_t>(bytes)) != 0) throw PythonError();
    room_ = bytes;
  }

  PyObject* object_;
  std::size_t used_ = 0, room_ = 0;
};

// What all packets have. An event's own length is written behind `event`.
struct Frame {
  Phrase packet, time, event, begin, end;

  static constexpr std::size_t longest = 3 * Phrase::longest + 3 * longest_varint;

  // `content`: of `size` bytes, in a place with room for whole words.
  void write(Bytes& out, std::int64_t time_ns, const char* content, std::size_t size) const {
    char* const begun = out.room_for(longest + size + word);
    // The time stands where it will be if the packet's length takes one byte, as is usual.
    char* const body = packet.put(begun) + 1;
    char* next = put_varint(time.put(body), static_cast<std::uint64_t>(time_ns));
    next = put_varint(event.put(next), size);
    const std::size_t length = static_cast<std::size_t>(next - body) + size;
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
    out.wrote(next + size);
  }

  static constexpr std::size_t word = 16;
};

struct Lane {
  Bytes packets;
  std::vector<std::int64_t> open_ends;
  std::int64_t first_ns, last_ns;

  explicit Lane(std::int64_t start_ns) : first_ns(start_ns), last_ns(start_ns) {}

  void close_until(std::int64_t time_ns, const Frame& frame) {
    while (!open_ends.empty() && open_ends.back() <= time_ns) {
      last_ns = open_ends.back();
      char content[Phrase::longest];
      frame.write(packets, last_ns, content, static_cast<std::size_t>(frame.end.put(content) - content));
      open_ends.pop_back();
    }
  }
  bool fits(std::int64_t end_ns, std::size_t max_depth) const {
    return open_ends.size() < max_depth && (open_ends.empty() || end_ns <= open_ends.back());
  }
};

Lane& lane_for(std::vector<Lane>& lanes, std::int64_t start_ns, std::int64_t end_ns, const Frame& frame,
               std::size_t max_depth) {
  for (Lane& lane : lanes) {
    lane.close_until(start_ns, frame);
    if (lane.fits(end_ns, max_depth)) return lane;
  }
  return lanes.emplace_back(start_ns);
}

std::vector<Lane> encoded(const Buffer& order, const Buffer& start, const Buffer& duration, const Buffer& rows,
                          const std::vector<Field>& fields, const Frame& frame, std::size_t max_depth) {
  std::vector<char> content(Phrase::longest + fields.size() * longest_field + Frame::word);
  std::vector<Lane> lanes;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto slice = static_cast<std::size_t>(order.at<std::int32_t>(k));  // a negative one is beyond all columns
    const auto start_ns = start.at<std::int64_t>(slice), end_ns = start_ns + duration.at<std::int64_t>(slice);
    const auto row = rows.given() ? static_cast<std::size_t>(rows.at<std::int32_t>(slice)) : slice;
    Lane& lane = lane_for(lanes, start_ns, end_ns, frame, max_depth);
    char* next = frame.begin.put(content.data());
    for (const Field& field : fields) {
      std::uint64_t value;
      if (field.value_of(row, value)) next = field.put(next, value);
    }
    frame.write(lane.packets, start_ns, content.data(), static_cast<std::size_t>(next - content.data()));
    lane.open_ends.push_back(end_ns);
  }
  for (Lane& lane : lanes) lane.close_until(INT64_MAX, frame);
  return lanes;
}

PyObject* list_of(std::vector<Lane>& lanes) {
  PyObject* list = PyList_New(0);
  for (Lane& lane : lanes) {
    if (list == nullptr) break;
    PyObject* packets = nullptr;
    try {
      packets = lane.packets.release();
    } catch (const PythonError&) {
      Py_CLEAR(list);
      break;
    }
    PyObject* item = Py_BuildValue("(LLN)", static_cast<long long>(lane.first_ns), static_cast<long long>(lane.last_ns),
                                   packets);
    if (item == nullptr || PyList_Append(list, item) != 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

PyObject* encode(PyObject*, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"order", "start_ns", "duration_ns", "rows", "fields", "frame", "max_depth", nullptr};
  PyObject *order, *start, *duration, *rows, *items, *parts;
  Py_ssize_t max_depth;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOOO!O!n", const_cast<char**>(names), &order, &start,
                                   &duration, &rows, &PyList_Type, &items, &PyTuple_Type, &parts, &max_depth)) {
    return nullptr;
  }
  PyObject *packet, *time, *event, *begin, *end;
  if (!PyArg_ParseTuple(parts, "SSSSS", &packet, &time, &event, &begin, &end)) return nullptr;
  try {
    const Frame frame{Phrase(bytes_of(packet)), Phrase(bytes_of(time)), Phrase(bytes_of(event)),
                      Phrase(bytes_of(begin)), Phrase(bytes_of(end))};
    const Buffer starts(start, sizeof(std::int64_t)), durations(duration, sizeof(std::int64_t));
    const Buffer opening(order, sizeof(std::int32_t)), told_in = optional(rows, sizeof(std::int32_t));
    if (max_depth < 1) throw std::invalid_argument("a lane holds one slice at least");
    std::vector<Field> fields;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items); ++k) {
      fields.push_back(field_of(PyList_GET_ITEM(items, k)));
    }
    std::vector<Lane> lanes =
        encoded(opening, starts, durations, told_in, fields, frame, static_cast<std::size_t>(max_depth));
    return list_of(lanes);
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

PyMethodDef methods[] = {
    {"encode", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(encode)), METH_VARARGS | METH_KEYWORDS,
     "encode(order, start_ns, duration_ns, rows, fields, frame, max_depth): of each lane its first and last time, and\n"
     "its packets. order: int32, slices in the order in which they open, the outer first; rows: int32 or None, where the\n"
     "columns of fields have what each slice says; fields: a list of (around, tag, values, numbers, present, place,\n"
     "is_fixed64); frame: the tags of a packet and of its time, what follows that up to the\n"
     "tag of its event, and what an event says that begins and that ends a slice. Raises ValueError: columns that do not\n"
     "fit together."},
    {nullptr, nullptr, 0, nullptr},
};

int execute(PyObject* module) { return PyModule_AddIntConstant(module, "INTERFACE", interface_number); }

PyModuleDef_Slot module_slots[] = {{Py_mod_exec, reinterpret_cast<void*>(execute)}, {0, nullptr}};
PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_encoder", "Slices to packets.", 0, methods, module_slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__encoder() { return PyModuleDef_Init(&module_definition); }
