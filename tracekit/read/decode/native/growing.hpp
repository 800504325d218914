// Arrays that grow while a file is read, and the numbering of its texts.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

namespace tracekit {

// An array that doubles its capacity. Pages not yet written take no memory, and realloc remaps a large block.
template <typename T>
class GrowingArray {
 public:
  GrowingArray() = default;
  GrowingArray(const GrowingArray&) = delete;
  GrowingArray& operator=(const GrowingArray&) = delete;
  ~GrowingArray() { std::free(data_); }

  void push(T value) {
    if (size_ == capacity_) grow();
    data_[size_++] = value;
  }
  std::size_t size() const { return size_; }

  // Returns the values, which the caller must free.
  T* release() {
    size_ = capacity_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void grow() {
    const std::size_t capacity = capacity_ == 0 ? 1024 : 2 * capacity_;
    void* data = std::realloc(data_, capacity * sizeof(T));
    if (data == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// A hash of words in turn. Whoever writes a trace does not know the seed, and so cannot choose values that collide.
class SeededHash {
 public:
  explicit SeededHash(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t begin(std::uint64_t word) const { return mixed(seed_, word); }
  std::uint64_t then(std::uint64_t hash, std::uint64_t word) const { return mixed(hash ^ seed_, word); }

 private:
  __extension__ using Product = unsigned __int128;

  // Both halves of a product: each bit of the result depends on all of both factors. The hash once more, so that no
  // word makes all that came before it equal.
  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
    constexpr std::uint64_t odd = 0x9E3779B97F4A7C15, other_odd = 0xD1342543DE82EF95;  // any that are not 0
    const Product product = static_cast<Product>(hash ^ odd) * (word ^ other_odd);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64) ^ hash;
  }

  std::uint64_t seed_;
};

// Numbers distinct texts 0, 1, 2 ... by their first occurrence, and keeps a copy of each.
class Interner {
 public:
  explicit Interner(std::uint64_t seed) : hash_(seed), slots_(1024, Slot{0, -1}) {}

  // Returns the number of `text`. It is a new text when the number is the size before the call.
  std::int32_t intern(std::string_view text) {
    const std::uint64_t hash = hash_of(text);
    std::size_t slot_at = hash & (slots_.size() - 1);
    for (;; slot_at = (slot_at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[slot_at];
      if (slot.index < 0) break;
      if (slot.hash == hash && texts_[static_cast<std::size_t>(slot.index)] == text) return slot.index;
    }
    if (texts_.size() == std::numeric_limits<std::int32_t>::max()) throw std::bad_alloc();
    const auto index = static_cast<std::int32_t>(texts_.size());
    texts_.push_back(copy_of(text));
    slots_[slot_at] = Slot{hash, index};
    if (texts_.size() * 2 > slots_.size()) rehash();
    return index;
  }

  std::size_t size() const { return texts_.size(); }
  const std::vector<std::string_view>& texts() const { return texts_; }

 private:
  struct Slot {
    std::uint64_t hash;
    std::int32_t index;  // -1: empty
  };
  static constexpr std::size_t block_bytes = std::size_t{1} << 16;

  std::uint64_t hash_of(std::string_view text) const {
    std::uint64_t hash = hash_.begin(text.size());
    const char* at = text.data();
    std::size_t left = text.size();
    for (; left > 8; at += 8, left -= 8) hash = hash_.then(hash, word_at<std::uint64_t>(at));
    return hash_.then(hash, last_word(text, at, left));
  }

  // Returns the last `left` bytes of `text`, which begin at `at`, as one word. When fewer than a word are left,
  // it includes bytes before them again: that is faster than to assemble a word from bytes.
  static std::uint64_t last_word(std::string_view text, const char* at, std::size_t left) {
    if (text.size() >= 8) return word_at<std::uint64_t>(at + left - 8);
    if (left >= 4) {
      return word_at<std::uint32_t>(at) | std::uint64_t{word_at<std::uint32_t>(at + left - 4)} << 32;
    }
    if (left == 0) return 0;
    const auto byte = [at](std::size_t offset) { return std::uint64_t{static_cast<unsigned char>(at[offset])}; };
    return byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16;
  }

  template <typename Word>
  static Word word_at(const char* at) {
    Word word;
    std::memcpy(&word, at, sizeof word);
    return word;
  }

  // Returns a copy that never moves. Short texts share blocks.
  std::string_view copy_of(std::string_view text) {
    if (text.empty()) return {};
    if (text.size() > left_in_block_) {
      const std::size_t size = text.size() > block_bytes ? text.size() : block_bytes;
      blocks_.push_back(std::make_unique<char[]>(size));
      next_ = blocks_.back().get();
      left_in_block_ = size;
    }
    std::memcpy(next_, text.data(), text.size());
    const std::string_view copy(next_, text.size());
    next_ += text.size();
    left_in_block_ -= text.size();
    return copy;
  }

  void rehash() {
    std::vector<Slot> slots(slots_.size() * 2, Slot{0, -1});
    for (const Slot& slot : slots_) {
      if (slot.index < 0) continue;
      std::size_t slot_at = slot.hash & (slots.size() - 1);
      while (slots[slot_at].index >= 0) slot_at = (slot_at + 1) & (slots.size() - 1);
      slots[slot_at] = slot;
    }
    slots_.swap(slots);
  }

  SeededHash hash_;
  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  std::size_t left_in_block_ = 0;
};

}  // namespace tracekit
