// Encodes the slices of one track as packets of Perfetto's trace format.
//
// `lanes` assigns slices to lanes, rows on which slices nest. It goes through the slices in the order in which they open
// and keeps a stack of open ends for each lane. A slice goes to the first lane in which it crosses no open slice. A heap
// of all open slices says which stacks change before the next slice.
// `Packets` encodes one lane, a block at a time, so that a block is still in the CPU's cache when it is written.
// Lanes and messages equal those of `portable_packets`.
#include "../../read/decode/native/main_interpreter.hpp"
#include "borrowed.hpp"
#include "lanes.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace tracekit;

// Version of the module's interface. Raise it when the interface changes, so that other sources refuse this build.
constexpr long interface_number = 4;

constexpr std::size_t longest_varint = 10;
constexpr std::size_t block_bytes = 256 << 10;

char* put_varint(char* out, std::uint64_t value) {
  while (value > 0x7f) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

// Constant bytes of a message. All 16 are copied at once, which is faster than copying exactly `size` of them.
class ShortBytes {
 public:
  static constexpr std::size_t longest = 16;

  ShortBytes() = default;
  explicit ShortBytes(std::string_view text) : size_(text.size()) {
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

// A number that the events which begin slices carry, after the bytes of `prefix`. If `annotation` is not empty, prefix
// and number are inside of a nested message with that tag.
// If there are `numbers`, `values` are indexes into them. The field is absent where its number or its fixed64 is 0.
struct Field {
  ShortBytes annotation, prefix;
  Buffer values, numbers, present;
  bool is_fixed64;

  bool value_of(std::size_t row, std::uint64_t& value) const {
    if (present.given() && present.at<unsigned char>(row) == 0) return false;
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
      out = prefix.put(out);
      for (int byte = 0; byte < 8; ++byte) *out++ = static_cast<char>(value >> 8 * byte);
      return out;
    }
    if (annotation.size() == 0) return put_varint(prefix.put(out), value);
    char* length = annotation.put(out);  // one byte: the nested message is shorter than 128
    char* end = put_varint(prefix.put(length + 1), value);
    *length = static_cast<char>(end - length - 1);
    return end;
  }
};

constexpr std::size_t longest_field = 2 * ShortBytes::longest + 1 + longest_varint;

Field field_of(PyObject* item) {
  PyObject *annotation, *prefix, *values, *numbers, *present;
  int is_fixed64;
  if (!PyArg_ParseTuple(item, "SSOOOp", &annotation, &prefix, &values, &numbers, &present, &is_fixed64)) {
    throw PythonError();
  }
  const Py_ssize_t item_bytes = numbers == Py_None ? sizeof(std::uint64_t) : sizeof(std::int32_t);
  return {ShortBytes(bytes_of(annotation)),
          ShortBytes(bytes_of(prefix)),
          Buffer(values, item_bytes),
          optional(numbers, sizeof(std::uint64_t)),
          optional(present, sizeof(unsigned char)),
          is_fixed64 != 0};
}

// Fields that Python has encoded, to be put after the others. Each row has the id of some bytes of `content`, or -1.
// `longest`: of these bytes. Packets have room for as many, so that a size that was changed since is refused.
struct ExtraArgs {
  Buffer ids, starts, sizes, content;
  std::size_t longest = 0;

  std::string_view of_row(std::size_t row) const {
    const auto id = ids.given() ? ids.at<std::int32_t>(row) : -1;
    if (id < 0) return {};
    const auto at = static_cast<std::size_t>(id);
    const auto size = sizes.at<std::uint64_t>(at);
    if (size > longest) throw std::invalid_argument("a row's bytes are more than they were");
    return content.bytes(starts.at<std::uint64_t>(at), size);
  }
};

ExtraArgs extra_args_of(PyObject* item) {
  if (item == Py_None) return {};
  PyObject *ids, *starts, *sizes, *content;
  if (!PyArg_ParseTuple(item, "OOOO", &ids, &starts, &sizes, &content)) throw PythonError();
  ExtraArgs extra_args{Buffer(ids, sizeof(std::int32_t)), Buffer(starts, sizeof(std::int64_t)),
                       Buffer(sizes, sizeof(std::int64_t)), Buffer(content, 1)};
  for (std::size_t id = 0; id < extra_args.sizes.size(); ++id) {
    const auto size = extra_args.sizes.at<std::uint64_t>(id);
    if (size <= extra_args.content.size()) extra_args.longest = std::max<std::size_t>(extra_args.longest, size);
  }
  return extra_args;
}

// ---- Packets

// Constant bytes that all packets share, in their order: tag of the packet, tag of its time, all that stands between the
// time and the length of the event, and the first field of an event that begins or ends a slice.
struct PacketTemplate {
  ShortBytes packet, time, event, begin, end;

  static constexpr std::size_t longest = 3 * ShortBytes::longest + 3 * longest_varint;

  // Writes a packet whose event consists of `content`, `size` bytes, and then `extra_args`; returns its end.
  // `content` is copied in whole words, so there must be room for one more word behind `content` and behind the packet.
  char* put(char* out, std::int64_t time_ns, const char* content, std::size_t size,
            std::string_view extra_args = {}) const {
    // Most packets have a length of one byte. If it takes more, what follows the length is moved.
    char* const body = packet.put(out) + 1;
    char* next = put_varint(time.put(body), static_cast<std::uint64_t>(time_ns));
    next = put_varint(event.put(next), size + extra_args.size());
    const std::size_t length = static_cast<std::size_t>(next - body) + size + extra_args.size();
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
    if (!extra_args.empty()) std::memcpy(next + size, extra_args.data(), extra_args.size());
    return next + size + extra_args.size();
  }

  static constexpr std::size_t word = 16;
};

// The packets of one lane, one after the other.
class Lane {
 public:
  Lane(Buffer order, Buffer start, Buffer duration, Buffer rows, std::vector<Field> fields, ExtraArgs extra_args,
       PacketTemplate packet_template)
      : order_(std::move(order)),
        start_(std::move(start)),
        duration_(std::move(duration)),
        rows_(std::move(rows)),
        fields_(std::move(fields)),
        extra_args_(std::move(extra_args)),
        template_(packet_template),
        content_(ShortBytes::longest + fields_.size() * longest_field + PacketTemplate::word) {}

  bool done() const { return next_ == order_.size() && open_ends_.empty(); }
  std::size_t longest_packet() const {
    return PacketTemplate::longest + content_.size() + PacketTemplate::word + extra_args_.longest;
  }

  // Writes the next packet: the end of the innermost open slice, or the start of the next slice if that is earlier.
  char* put(char* out) {
    const bool opens = next_ < order_.size();
    // A negative index becomes one beyond the end of every column.
    const auto slice = opens ? static_cast<std::size_t>(order_.at<std::int32_t>(next_)) : 0;
    const auto start_ns = opens ? start_.at<std::int64_t>(slice) : INT64_MAX;
    if (!open_ends_.empty() && open_ends_.back() <= start_ns) {
      const auto end_ns = open_ends_.back();
      open_ends_.pop_back();
      const char* const end = template_.end.put(content_.data());
      return template_.put(out, end_ns, content_.data(), static_cast<std::size_t>(end - content_.data()));
    }
    ++next_;
    const auto row = rows_.given() ? static_cast<std::size_t>(rows_.at<std::int32_t>(slice)) : slice;
    open_ends_.push_back(end_of(start_ns, duration_.at<std::int64_t>(slice)));
    char* end = template_.begin.put(content_.data());
    for (const Field& field : fields_) {
      std::uint64_t value;
      if (field.value_of(row, value)) end = field.put(end, value);
    }
    return template_.put(out, start_ns, content_.data(), static_cast<std::size_t>(end - content_.data()),
                         extra_args_.of_row(row));
  }

 private:
  Buffer order_, start_, duration_, rows_;
  std::vector<Field> fields_;
  ExtraArgs extra_args_;
  PacketTemplate template_;
  std::vector<char> content_;  // fields of one event
  std::size_t next_ = 0;
  std::vector<std::int64_t> open_ends_;
};

struct PacketsObject {
  PyObject_HEAD
  Lane* lane;
};

PyObject* packets_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"order", "start_ns", "duration_ns", "rows", "fields", "extra_args", "template", nullptr};
  PyObject *order, *start, *duration, *rows, *items, *extra_args, *parts;
  PyObject *packet, *time, *event, *begin, *end;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOOO!OO!", const_cast<char**>(names), &order, &start,
                                   &duration, &rows, &PyList_Type, &items, &extra_args, &PyTuple_Type, &parts) ||
      !PyArg_ParseTuple(parts, "SSSSS", &packet, &time, &event, &begin, &end)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    const PacketTemplate packet_template{ShortBytes(bytes_of(packet)), ShortBytes(bytes_of(time)),
                                         ShortBytes(bytes_of(event)), ShortBytes(bytes_of(begin)),
                                         ShortBytes(bytes_of(end))};
    std::vector<Field> fields;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items); ++k) fields.push_back(field_of(PyList_GET_ITEM(items, k)));
    auto lane = std::make_unique<Lane>(Buffer(order, sizeof(std::int32_t)), Buffer(start, sizeof(std::int64_t)),
                                       Buffer(duration, sizeof(std::int64_t)), optional(rows, sizeof(std::int32_t)),
                                       std::move(fields), extra_args_of(extra_args), packet_template);
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
         "Packets(order, start_ns, duration_ns, rows, fields, extra_args, template): packets of one lane.\n\n"
         "Iterates over blocks of bytes.\n\n"
         "order: the lane's slices in the order in which they open, the outer first, int32.\n"
         "rows: the row of each slice in the columns of fields, int32; None: the slice's own index.\n"
         "fields: list of (annotation, prefix, values, numbers, present, is_fixed64).\n"
         "extra_args: None, or (ids, starts, sizes, content): encoded fields by id, put after the others.\n"
         "template: tag of a packet, tag of its time, bytes between the time and the event's length, and the first\n"
         "field of an event that begins and that ends a slice.\n\n"
         "Raises ValueError, also during iteration, if columns do not fit together.")},
    {0, nullptr},
};
PyType_Spec packets_spec = {"tracekit.render.perfetto._encoder.Packets", sizeof(PacketsObject), 0, Py_TPFLAGS_DEFAULT,
                            packets_slots};

// ---- Lanes

PyObject* lanes(PyObject*, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"order", "start_ns", "duration_ns", "max_depth", "max_lanes", nullptr};
  PyObject *order, *start, *duration;
  Py_ssize_t max_depth, max_lanes;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOnn", const_cast<char**>(names), &order, &start, &duration,
                                   &max_depth, &max_lanes)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    const Buffer opening(order, sizeof(std::int32_t));
    const Buffer starts(start, sizeof(std::int64_t)), durations(duration, sizeof(std::int64_t));
    if (max_depth < 1 || max_lanes < 1) throw std::invalid_argument("there must be a lane that holds a slice");
    std::vector<std::int32_t> found(opening.size());
    Lanes lanes(static_cast<std::size_t>(max_depth), std::min<std::size_t>(max_lanes, INT32_MAX));
    for (std::size_t k = 0; k < found.size(); ++k) {
      const auto slice = static_cast<std::size_t>(opening.at<std::int32_t>(k));
      const auto start_ns = starts.at<std::int64_t>(slice);
      found[k] = lanes.add(start_ns, end_of(start_ns, durations.at<std::int64_t>(slice)));
    }
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(found.data()),
                                     static_cast<Py_ssize_t>(found.size() * sizeof(std::int32_t)));
  });
}

PyMethodDef methods[] = {
    {"lanes", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(lanes)), METH_VARARGS | METH_KEYWORDS,
     "lanes(order, start_ns, duration_ns, max_depth, max_lanes): lane of each slice in `order`, as the bytes of\n"
     "int32; -1 for slices that cross others in all of `max_lanes` lanes. Raises ValueError if columns do not fit."},
    {nullptr, nullptr, 0, nullptr},
};

int execute(PyObject* module) {
  if (!is_main_interpreter("tracekit.render.perfetto._encoder")) return -1;
  PyObject* packets_type = PyType_FromSpec(&packets_spec);
  const int added = packets_type == nullptr ? -1 : PyModule_AddObjectRef(module, "Packets", packets_type);
  Py_XDECREF(packets_type);
  if (added != 0) return -1;
  return PyModule_AddIntConstant(module, "INTERFACE", interface_number);
}

PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(execute)}, TRACEKIT_MAIN_INTERPRETER_ONLY{0, nullptr}};
PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_encoder", "Encodes slices as packets.", 0, methods, module_slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__encoder() { return PyModuleDef_Init(&module_definition); }
