// What Python and C++ hand each other: columns, bytes, errors.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace tracekit {

struct PythonError {};  // Python's own error is set

// A column that Python lends: contiguous, of items of one size. Reading beyond its end throws std::invalid_argument.
class Buffer {
 public:
  Buffer() = default;
  Buffer(PyObject* object, Py_ssize_t item_bytes) {
    if (PyObject_GetBuffer(object, &view_, PyBUF_ND) != 0) throw PythonError();  // ND: contiguous
    if (view_.ndim != 1 || view_.itemsize != item_bytes) {
      PyBuffer_Release(&view_);
      throw std::invalid_argument("a column has items of another size");
    }
    size_ = static_cast<std::size_t>(view_.len / view_.itemsize);
  }
  Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})), size_(other.size_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }  // does nothing for an empty one

  std::size_t size() const { return size_; }
  bool given() const { return view_.obj != nullptr; }
  template <typename T>
  T at(std::size_t index) const {
    if (index >= size_) throw std::invalid_argument("a row is beyond the end of a column");
    return static_cast<const T*>(view_.buf)[index];
  }
  std::string_view bytes(std::uint64_t start, std::uint64_t size) const {
    if (start > size_ || size > size_ - start) throw std::invalid_argument("a row's bytes are not in the content");
    return {static_cast<const char*>(view_.buf) + start, static_cast<std::size_t>(size)};
  }

 private:
  Py_buffer view_{};
  std::size_t size_ = 0;
};

inline Buffer optional(PyObject* object, Py_ssize_t item_bytes) {
  return object == Py_None ? Buffer() : Buffer(object, item_bytes);
}

inline std::string_view bytes_of(PyObject* object) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(object, &data, &size) != 0) throw PythonError();
  return {data, static_cast<std::size_t>(size)};
}

// Calls `make` and turns its exceptions into Python's.
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

}  // namespace tracekit
