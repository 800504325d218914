// The grammar of JSON (RFC 8259) over text that may end anywhere.
//
// A function takes where a value begins and returns where it ends. `padding_bytes` zeros must follow the text: no JSON
// has a zero, so that no function runs past the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string_view>

namespace tracekit {

// The text ends inside a value.
struct Incomplete : std::exception {};

// Text that the portable decoder must judge: it is damaged, or has a form that no profiler writes.
struct NotUnderstood : std::exception {};

constexpr std::size_t padding_bytes = 64;

// Eight bytes are compared or added up at a time, the first in the lowest byte of a word.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "on such machines the portable decoder is used");

class Json {
 public:
  explicit Json(const char* end) : end_(end) {}

  [[noreturn]] void fail(const char* at) const {
    if (at >= end_) throw Incomplete();
    throw NotUnderstood();
  }

  static const char* skip_space(const char* at) {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') ++at;
    return at;
  }

  struct String {
    std::string_view text;  // between the quotes
    bool plain;             // neither escapes nor characters beyond ASCII
    const char* end;        // behind the closing quote
  };

  // `at` is behind the opening quote.
  String string(const char* at) const {
    const char* begin = at;
    bool plain = true;
    for (;;) {
      at = next_special(at);
      const auto character = static_cast<unsigned char>(*at);
      if (character == '"') return {{begin, static_cast<std::size_t>(at - begin)}, plain, at + 1};
      if (character < 0x20) fail(at);
      plain = false;
      at = character == '\\' ? escape(at + 1) : at + 1;
    }
  }

  struct Integer {
    bool negative;
    std::ptrdiff_t digits;
    std::uint64_t magnitude;  // wrong with more than 19 digits
    const char* end;          // where a fraction or an exponent may follow
  };

  Integer integer(const char* at) const {
    const bool negative = *at == '-';
    const char* const begin = at += negative;
    std::uint64_t magnitude = 0;
    for (;;) {
      constexpr std::uint64_t scale[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
      const std::uint64_t values = word_at(at) ^ (ones * '0');
      const unsigned count = digits_in(values);
      if (count == 8) {
        magnitude = magnitude * 100000000 + number_of(values);
        at += 8;
        continue;
      }
      // The digits go to the high end; zeros in front of them change nothing.
      if (count != 0) magnitude = magnitude * scale[count] + number_of(values << (8 * (8 - count)));
      at += count;
      break;
    }
    if (at == begin) fail(at);
    if (*begin == '0' && at - begin > 1) throw NotUnderstood();
    return {negative, at - begin, magnitude, at};
  }

  const char* skip_value(const char* at, int depth = max_depth) const {
    switch (*at) {
      case '"':
        return string(at + 1).end;
      case '{':
        return skip_members(at, depth);
      case '[':
        return skip_items(at, depth);
      case 't':
        return skip_literal(at, "true");
      case 'f':
        return skip_literal(at, "false");
      case 'n':
        return skip_literal(at, "null");
      default:
        return skip_number(at);
    }
  }

  const char* skip_literal(const char* at, const char* literal) const {
    for (; *literal != '\0'; ++literal, ++at) {
      if (*at != *literal) fail(at);
    }
    return at;
  }

  const char* skip_number(const char* at) const {
    at = integer(at).end;
    if (*at == '.') at = skip_digits(at + 1);
    if (*at == 'e' || *at == 'E') {
      ++at;
      if (*at == '+' || *at == '-') ++at;
      at = skip_digits(at);
    }
    return at;
  }

  // At least one.
  const char* skip_digits(const char* at) const {
    if (!is_digit(*at)) fail(at);
    while (is_digit(*at)) ++at;
    return at;
  }

  static bool is_digit(char character) { return character >= '0' && character <= '9'; }

 private:
  static constexpr int max_depth = 64;

  const char* skip_members(const char* at, int depth) const {
    if (depth == 0) throw NotUnderstood();
    at = skip_space(at + 1);
    if (*at == '}') return at + 1;
    for (;;) {
      if (*at != '"') fail(at);
      at = skip_space(string(at + 1).end);
      if (*at != ':') fail(at);
      at = skip_space(skip_value(skip_space(at + 1), depth - 1));
      if (*at == '}') return at + 1;
      if (*at != ',') fail(at);
      at = skip_space(at + 1);
    }
  }

  const char* skip_items(const char* at, int depth) const {
    if (depth == 0) throw NotUnderstood();
    at = skip_space(at + 1);
    if (*at == ']') return at + 1;
    for (;;) {
      at = skip_space(skip_value(at, depth - 1));
      if (*at == ']') return at + 1;
      if (*at != ',') fail(at);
      at = skip_space(at + 1);
    }
  }

  // `at` is behind the backslash. Surrogates are left to the portable decoder.
  const char* escape(const char* at) const {
    switch (*at) {
      case '"':
      case '\\':
      case '/':
      case 'b':
      case 'f':
      case 'n':
      case 'r':
      case 't':
        return at + 1;
      case 'u':
        break;
      default:
        fail(at);
    }
    for (int digit = 1; digit <= 4; ++digit) {
      const char character = at[digit];
      const char lower = static_cast<char>(character | 0x20);
      if (!is_digit(character) && !(lower >= 'a' && lower <= 'f')) fail(at + digit);
    }
    if ((at[1] | 0x20) == 'd' && at[2] > '7') throw NotUnderstood();
    return at + 5;
  }

  // Returns the next quote, backslash, control character or byte beyond ASCII.
  static const char* next_special(const char* at) {
    for (;; at += 8) {
      const std::uint64_t word = word_at(at), quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
      std::uint64_t marks = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash);
      marks = (marks | ((word - ones * 0x20) & ~word) | word) & highs;
      // A borrow can set a wrong mark only behind a right one, so the first mark is right.
      if (marks != 0) return at + __builtin_ctzll(marks) / 8;
    }
  }

  static std::uint64_t word_at(const char* at) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
  }

  // Returns how many digits come before the first other character. `values`: eight characters, each less '0'.
  static unsigned digits_in(std::uint64_t values) {
    const std::uint64_t others = ((values + ones * 6) | values) & (ones * 0xF0);
    return others == 0 ? 8 : static_cast<unsigned>(__builtin_ctzll(others)) / 8;
  }

  // Returns the number of eight digits, the first in the lowest byte: by pairs, then fours, then all.
  static std::uint64_t number_of(std::uint64_t values) {
    values = values * 10 + (values >> 8);
    constexpr std::uint64_t mask = 0x000000FF000000FF;
    const std::uint64_t first = (values & mask) * (100 + (std::uint64_t{1000000} << 32));
    const std::uint64_t second = ((values >> 16) & mask) * (1 + (std::uint64_t{10000} << 32));
    return (first + second) >> 32;
  }

  static constexpr std::uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;

  const char* end_;
};

}  // namespace tracekit
