// Modules that keep types in variables of C++, which the interpreters of a process would share.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

// A slot that says so; Python before 3.12 has none.
#ifdef Py_mod_multiple_interpreters
#define TRACEKIT_MAIN_INTERPRETER_ONLY {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#else
#define TRACEKIT_MAIN_INTERPRETER_ONLY
#endif

namespace tracekit {

// Returns false, with an ImportError that names the module, in a subinterpreter: the portable code serves there.
inline bool is_main_interpreter(const char* module_name) {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return true;
  PyObject* message = PyUnicode_FromString("not for subinterpreters");
  PyObject* name = PyUnicode_FromString(module_name);
  if (message != nullptr && name != nullptr) PyErr_SetImportError(message, name, nullptr);
  Py_XDECREF(message);
  Py_XDECREF(name);
  return false;
}

}  // namespace tracekit
