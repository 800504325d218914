// The Python side of the scanner: `Scanner(communication_prefixes, sized, excluded_args)`, `scan`, `take`.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "main_interpreter.hpp"
#include "scanner.hpp"

namespace {

using namespace tracekit;

// Raise it when arguments or results of `Scanner` change: then Python code of another version refuses this build.
constexpr long interface_number = 8;

PyObject* not_understood = nullptr;

// ---- Column: memory of the scanner, which numpy reads through the buffer protocol.

struct Column {
  PyObject_HEAD
  void* data;
  Py_ssize_t size_bytes;
};

int column_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* column = reinterpret_cast<Column*>(self);
  return PyBuffer_FillInfo(view, self, column->data, column->size_bytes, 0, flags);
}

void column_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  std::free(reinterpret_cast<Column*>(self)->data);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot column_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(column_get_buffer)},
    {Py_tp_dealloc, reinterpret_cast<void*>(column_dealloc)},
    {0, nullptr},
};
PyType_Spec column_spec = {"tracekit.read.decode.native._scanner.Column", sizeof(Column), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, column_slots};
PyTypeObject* column_type = nullptr;

template <typename T>
PyObject* to_column(GrowingArray<T>& values) {
  auto* column = PyObject_New(Column, column_type);
  if (column == nullptr) return nullptr;
  column->size_bytes = static_cast<Py_ssize_t>(values.size() * sizeof(T));
  column->data = values.release();
  return reinterpret_cast<PyObject*>(column);
}

// ---- The result of `take`. PythonError: a Python exception is set.

struct PythonError {};

class Dict {
 public:
  Dict() : dict_(PyDict_New()) {
    if (dict_ == nullptr) throw PythonError();
  }
  Dict(const Dict&) = delete;
  Dict& operator=(const Dict&) = delete;
  ~Dict() { Py_XDECREF(dict_); }

  // Steals the reference to `value`.
  void set(const char* key, PyObject* value) {
    const int status = value == nullptr ? -1 : PyDict_SetItemString(dict_, key, value);
    Py_XDECREF(value);
    if (status != 0) throw PythonError();
  }
  PyObject* release() { return std::exchange(dict_, nullptr); }

 private:
  PyObject* dict_;
};

PyObject* bytes_of(std::string_view text) {
  return PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

// Returns a list of `item(k)` for each k below `count`.
template <typename Item>
PyObject* list_of(std::size_t count, Item item) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(count));
  for (std::size_t k = 0; list != nullptr && k < count; ++k) {
    PyObject* value = item(k);
    if (value == nullptr) {
      Py_CLEAR(list);
    } else {
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(k), value);
    }
  }
  return list;
}

PyObject* list_of(const Interner& interner) {
  return list_of(interner.size(), [&](std::size_t k) { return bytes_of(interner.texts()[k]); });
}

PyObject* process_or_thread_of(const ProcessOrThread& id, const Events& events) {
  switch (id.kind) {
    case ProcessOrThread::number:
      return PyLong_FromLongLong(id.value);
    case ProcessOrThread::text:
      return bytes_of(events.texts.texts()[static_cast<std::size_t>(id.value)]);
    default:
      return Py_NewRef(Py_None);
  }
}

PyObject* track_of(const Track& track, const Events& events) {
  PyObject* process = process_or_thread_of(track.process, events);
  PyObject* thread = process_or_thread_of(track.thread, events);
  return Py_BuildValue("(NN)", process, thread);
}

constexpr const char* collective_text_names[collective_texts] = {"collective", "dtype", "group_name",
                                                                 "group_description", "group_ranks"};
constexpr const char* collective_number_names[collective_numbers] = {"in_elements", "out_elements", "group_size",
                                                                     "sequence",    "source_rank",  "destination_rank"};
constexpr const char* shape_names[shape_texts] = {"input_shapes", "input_types", "concrete_inputs"};
constexpr const char* memory_number_names[memory_numbers] = {"device_type", "device_id", "change_bytes",
                                                             "allocated_bytes", "reserved_bytes"};

PyObject* build_result(Events& events) {
  Dict dense;
  dense.set("name", to_column(events.name));
  dense.set("category", to_column(events.category));
  dense.set("track", to_column(events.track));
  dense.set("start_ns", to_column(events.start_ns));
  dense.set("duration_ns", to_column(events.duration_ns));
  dense.set("correlation", to_column(events.correlation));
  dense.set("external_id", to_column(events.external_id));
  dense.set("sequence_number", to_column(events.sequence_number));
  dense.set("forward_thread", to_column(events.forward_thread));
  dense.set("shape", to_column(events.shape));
  dense.set("extra_args", to_column(events.extra_args));
  dense.set("position", to_column(events.position));
  Dict collectives;
  collectives.set("row", to_column(events.collectives.row));
  for (std::size_t k = 0; k < collective_texts; ++k) {
    collectives.set(collective_text_names[k], to_column(events.collectives.text[k]));
  }
  for (std::size_t k = 0; k < collective_numbers; ++k) {
    collectives.set(collective_number_names[k], to_column(events.collectives.number[k]));
  }
  for (std::size_t k = 0; k < shape_texts; ++k) collectives.set(shape_names[k], to_column(events.collectives.shape[k]));
  Dict operators;
  operators.set("row", to_column(events.operators.row));
  for (std::size_t k = 0; k < shape_texts; ++k) operators.set(shape_names[k], to_column(events.operators.shape[k]));
  Dict memory;
  memory.set("time_ns", to_column(events.memory.time_ns));
  for (std::size_t k = 0; k < memory_numbers; ++k) {
    memory.set(memory_number_names[k], to_column(events.memory.number[k]));
  }
  Dict synchronisations, counters;
  synchronisations.set("row", to_column(events.synchronisations.at));
  synchronisations.set("arguments", to_column(events.synchronisations.arguments));
  counters.set("time_ns", to_column(events.counters.at));
  counters.set("process", to_column(events.counters.process));
  counters.set("name", to_column(events.counters.name));
  counters.set("arguments", to_column(events.counters.arguments));
  Dict result;
  result.set("dense", dense.release());
  result.set("collectives", collectives.release());
  result.set("operators", operators.release());
  result.set("memory", memory.release());
  result.set("synchronisations", synchronisations.release());
  result.set("counters", counters.release());
  result.set("texts", list_of(events.texts));
  result.set("values", list_of(events.values));
  result.set("extra_args_texts", list_of(events.extra_args_texts));
  const auto track_at = [&](std::size_t k) { return track_of(events.tracks[k], events); };
  result.set("tracks", list_of(events.tracks.size(), track_at));
  result.set("labels", list_of(events.labels.size(), [&](std::size_t k) {
               const Label& label = events.labels[k];
               return Py_BuildValue("(NNN)", PyBool_FromLong(label.names_process), track_of(label.track, events),
                                    bytes_of(events.texts.texts()[static_cast<std::size_t>(label.text)]));
             }));
  result.set("other_phases", list_of(events.other_phases.size(), [&](std::size_t k) {
               const auto& [phase, count] = events.other_phases[k];
               return Py_BuildValue("(NL)", bytes_of(phase), static_cast<long long>(count));
             }));
  result.set("malformed", PyLong_FromLongLong(events.malformed));
  result.set("negative_durations", PyLong_FromLongLong(events.negative_durations));
  return result.release();
}

// ---- Scanner

struct ScannerObject {
  PyObject_HEAD
  Scanner* scanner;  // null while another thread uses it, and after `take`
};

// Returns false when a Python exception is set. Throws bad_alloc.
bool append_texts(PyObject* texts, std::vector<std::string>& out) {
  PyObject* sequence = PySequence_Fast(texts, "not a sequence of bytes");
  if (sequence == nullptr) return false;
  bool good = true;
  for (Py_ssize_t k = 0; good && k < PySequence_Fast_GET_SIZE(sequence); ++k) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    good = PyBytes_AsStringAndSize(PySequence_Fast_GET_ITEM(sequence, k), &data, &size) == 0;
    if (good) out.emplace_back(data, static_cast<std::size_t>(size));
  }
  Py_DECREF(sequence);
  return good;
}

PyObject* scanner_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"communication_prefixes", "sized", "excluded_args",
                                "max_events",             "seed",        nullptr};
  PyObject *prefixes = nullptr, *sized = nullptr, *excluded_args = Py_None;
  int max_events = INT32_MAX;
  unsigned long long seed = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|OiK", const_cast<char**>(names), &prefixes, &sized,
                                   &excluded_args, &max_events, &seed)) {
    return nullptr;
  }
  auto* self = reinterpret_cast<ScannerObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  try {
    Rules rules;
    std::vector<std::string> operators, excluded;
    rules.max_events = max_events;
    rules.seed = seed;
    rules.keeps_extra_args = excluded_args != Py_None;
    if (append_texts(prefixes, rules.communication_prefixes) && append_texts(sized, operators) &&
        (!rules.keeps_extra_args || append_texts(excluded_args, excluded))) {
      rules.sized.insert(operators.begin(), operators.end());
      rules.excluded_args.insert(excluded.begin(), excluded.end());
      self->scanner = new Scanner(std::move(rules));
      return reinterpret_cast<PyObject*>(self);
    }
  } catch (...) {  // nothing else is thrown than bad_alloc and its like
    PyErr_NoMemory();
  }
  Py_DECREF(self);
  return nullptr;
}

void scanner_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<ScannerObject*>(self)->scanner;
  type->tp_free(self);
  Py_DECREF(type);
}

Scanner* claim(PyObject* self) {
  Scanner* scanner = std::exchange(reinterpret_cast<ScannerObject*>(self)->scanner, nullptr);
  if (scanner == nullptr) PyErr_SetString(PyExc_RuntimeError, "this scanner is in use, or its columns were taken");
  return scanner;
}

PyObject* scanner_scan(PyObject* self, PyObject* arguments) {
  Py_buffer buffer;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(arguments, "w*n", &buffer, &size)) return nullptr;
  constexpr auto padding = static_cast<Py_ssize_t>(padding_bytes);
  if (size < 0 || buffer.len < padding || size > buffer.len - padding) {
    PyBuffer_Release(&buffer);
    PyErr_SetString(PyExc_ValueError, "the buffer has no room for the text and the padding behind it");
    return nullptr;
  }
  Scanner* scanner = claim(self);
  if (scanner == nullptr) {
    PyBuffer_Release(&buffer);
    return nullptr;
  }
  std::size_t used = 0;
  bool understood = true, out_of_memory = false;
  Py_BEGIN_ALLOW_THREADS;
  try {
    char* text = static_cast<char*>(buffer.buf);
    std::memset(text + size, 0, padding_bytes);
    used = scanner->scan(text, static_cast<std::size_t>(size));
  } catch (const NotUnderstood&) {
    understood = false;
  } catch (...) {  // nothing else is thrown than bad_alloc and its like
    out_of_memory = true;
  }
  Py_END_ALLOW_THREADS;
  reinterpret_cast<ScannerObject*>(self)->scanner = scanner;
  PyBuffer_Release(&buffer);
  if (out_of_memory) return PyErr_NoMemory();
  if (!understood) {
    PyErr_SetString(not_understood, "text that only the portable decoder can judge");
    return nullptr;
  }
  return Py_BuildValue("(nN)", static_cast<Py_ssize_t>(used), PyBool_FromLong(scanner->closed()));
}

PyObject* scanner_take(PyObject* self, PyObject*) {
  const std::unique_ptr<Scanner> scanner(claim(self));
  if (scanner == nullptr) return nullptr;
  try {
    return build_result(scanner->events());
  } catch (const PythonError&) {
    return nullptr;
  } catch (...) {  // nothing else is thrown than bad_alloc and its like
    return PyErr_NoMemory();
  }
}

PyMethodDef scanner_methods[] = {
    {"scan", scanner_scan, METH_VARARGS,
     "scan(buffer, size): scan text behind the `[` of the events, the first `size` bytes of a buffer.\n\n"
     "Returns how many bytes were used, up to the end of the last whole event, and whether the array closed there.\n"
     "The next call must begin with the remaining bytes. PADDING_BYTES bytes behind the text are overwritten.\n"
     "Raises NotUnderstoodError when only the portable decoder can judge the text. The GIL is released meanwhile."},
    {"take", scanner_take, METH_NOARGS, "Return the columns and texts. The scanner cannot be used any more."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot scanner_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(scanner_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(scanner_dealloc)},
    {Py_tp_methods, scanner_methods},
    {Py_tp_doc, const_cast<char*>("Scanner(communication_prefixes, sized, excluded_args=None, max_events=2**31-1, seed=0): to columns.\n\n"
                                  "excluded_args: those that are no extra arguments. None: keep no extra arguments.\n"
                                  "max_events: more of them are not understood.\n"
                                  "seed: of hash tables, a random number below 2**64.")},
    {0, nullptr},
};
PyType_Spec scanner_spec = {"tracekit.read.decode.native._scanner.Scanner", sizeof(ScannerObject), 0,
                            Py_TPFLAGS_DEFAULT, scanner_slots};

int add(PyObject* module, const char* name, PyObject* value) {
  const int status = value == nullptr ? -1 : PyModule_AddObjectRef(module, name, value);
  return status;
}

int execute(PyObject* module) {
  if (!is_main_interpreter("tracekit.read.decode.native._scanner")) return -1;
  column_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&column_spec));
  if (column_type == nullptr) return -1;
  not_understood =
      PyErr_NewException("tracekit.read.decode.native._scanner.NotUnderstoodError", PyExc_ValueError, nullptr);
  if (add(module, "NotUnderstoodError", not_understood) != 0) return -1;
  PyObject* scanner_type = PyType_FromSpec(&scanner_spec);
  const int added = add(module, "Scanner", scanner_type);
  Py_XDECREF(scanner_type);
  if (added != 0) return -1;
  PyObject* keys = list_of(argument_keys.size(), [](std::size_t k) {
    return PyUnicode_FromStringAndSize(argument_keys[k].data(), static_cast<Py_ssize_t>(argument_keys[k].size()));
  });
  const int status = add(module, "ARGUMENT_KEYS", keys);
  Py_XDECREF(keys);
  if (status != 0) return status;
  if (PyModule_AddIntConstant(module, "INTERFACE", interface_number) != 0) return -1;
  return PyModule_AddIntConstant(module, "PADDING_BYTES", padding_bytes);
}

PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(execute)}, TRACEKIT_MAIN_INTERPRETER_ONLY{0, nullptr}};
PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_scanner", "The native scanner of Kineto traces.", 0, nullptr, module_slots,
    nullptr,               nullptr,    nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__scanner() { return PyModuleDef_Init(&module_definition); }
