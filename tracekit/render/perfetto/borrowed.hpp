// What Python and C++ hand each other: columns, bytes, errors.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace tracekit {

struct PythonError {};  // Python's own error is set

// A column that Python lends: contiguous, of integers of one size in the machine's order of bytes, or of truth values.
// It may begin anywhere, and Python may write to it meanwhile. Reading beyond its end throws std::invalid_argument.
class Buffer {
 public:
  Buffer() = default;
  Buffer(PyObject* object, Py_ssize_t item_bytes) {
    if (PyObject_GetBuffer(object, &view_, PyBUF_ND | PyBUF_FORMAT) != 0) throw PythonError();  // ND: contiguous
    if (view_.ndim != 1 || view_.itemsize != item_bytes || !is_integer(view_.format)) {
      PyBuffer_Release(&view_);
      throw std::invalid_argument("a column is not of integers of the expected size");
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
    T value;
    std::memcpy(&value, static_cast<const char*>(view_.buf) + index * sizeof(T), sizeof(T));
    return value;
  }
  std::string_view bytes(std::uint64_t start, std::uint64_t size) const {
    if (start > size_ || size > size_ - start) throw std::invalid_argument("a row's bytes are not in the content");
    return {static_cast<const char*>(view_.buf) + start, static_cast<std::size_t>(size)};
  }

 private:
  // Formats of Python's module struct; none: bytes.
  static bool is_integer(const char* format) {
    if (format == nullptr) return true;
    if (*format == '@' || *format == '=') ++format;
    return *format != '\0' && std::strchr("?bBhHiIlLqQnNc", *format) != nullptr && format[1] == '\0';
  }

  Py_buffer view_{};
  std::size_t size_ = 0;
};

inline Buffer optional(PyObject* object, Py_ssize_t item_bytes) {
  return object == Py_None ? Buffer() : Buffer(object, item_bytes);
}

// Throws std::invalid_argument where the sum is beyond int64.
inline std::int64_t end_of(std::int64_t start, std::int64_t duration) {
  std::int64_t end;
  if (__builtin_add_overflow(start, duration, &end)) throw std::invalid_argument("a slice ends beyond int64");
  return end;
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
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

}  // namespace tracekit
