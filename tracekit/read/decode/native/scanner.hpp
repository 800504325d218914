// The events of a trace to columns, in one pass over text that comes in pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "events.hpp"
#include "json.hpp"
#include "layout.hpp"

namespace tracekit {

// Of which events arguments are kept (read/columns.py).
struct Rules {
  std::vector<std::string> communication_prefixes;
  std::unordered_set<std::string> multiplying;
  bool keeps_details = false;
  std::unordered_set<std::string> no_details;  // arguments that are none (read/details.py)
};

// The arguments of events that are kept, in the order of `Field`.
constexpr std::size_t arguments =
    static_cast<std::size_t>(Field::label) - static_cast<std::size_t>(Field::external_id) + 1;
extern const std::array<std::string_view, arguments> argument_keys;

static_assert(Layout::longest_bytes + 8 <= padding_bytes, "a comparison must not leave the text and its padding");

class Scanner {
 public:
  explicit Scanner(Rules rules) : rules_(std::move(rules)) {}

  // Scan text behind the `[` of the events, up to the last event that is whole or behind the `]` that closes the array.
  // Returns how much that is; the rest must come again in front of what follows. There must be `padding_bytes` zeros
  // behind the text. Throws NotUnderstood, after which this scanner is of no more use.
  std::size_t scan(const char* text, std::size_t size);

  // Whether the `]` was met: nothing more is to be scanned.
  bool closed() const { return expected_ == Expected::nothing; }
  Events& events() { return events_; }

 private:
  enum class Expected { event_or_end, event, comma_or_end, nothing };

  // What the value behind a gap is for. `key_at`: as in `Layout`.
  struct Gap {
    Field field;
    std::size_t key_at;
  };

  // The arguments of one event that are details, as members of a JSON object: runs of them that stand side by side in
  // what is scanned, which are copied only where there are several.
  class Details {
   public:
    void clear() {
      only_ = {};
      several_.clear();
    }
    void add(std::string_view run) {
      if (only_.empty()) {
        only_ = run;
      } else {
        if (several_.empty()) several_ = only_;
        several_.append(1, ',').append(run);
      }
    }
    std::string_view text() const { return several_.empty() ? only_ : std::string_view(several_); }

   private:
    std::string_view only_;
    std::string several_;
  };

  // What one event says. A text is a piece of what is scanned: what is between the quotes of a string, else the value as it is
  // written. Times are in nanoseconds.
  class Draft {
   public:
    Track track;
    Details details;

    void clear() {
      present_ = 0;
      track = Track();
      details.clear();
    }
    bool has(Field field) const { return (present_ & bit(field)) != 0; }
    std::string_view text(Field field) const { return has(field) ? texts_[index(field)] : std::string_view(); }
    std::int64_t number(Field field) const { return has(field) ? numbers_[index(field)] : absent; }
    void set(Field field, std::string_view text) {
      texts_[index(field)] = text;
      present_ |= bit(field);
    }
    void set(Field field, std::int64_t number) {
      numbers_[index(field)] = number;
      present_ |= bit(field);
    }
    void unset(Field field) {
      present_ &= ~bit(field);
      if (field == Field::process) track.process = PlaceId();
      if (field == Field::thread) track.thread = PlaceId();
    }
    void unset_from(Field field) { present_ &= bit(field) - 1; }

   private:
    static constexpr std::size_t most_fields = 64;
    static_assert(static_cast<std::size_t>(Field::label) < most_fields);

    static constexpr std::size_t index(Field field) { return static_cast<std::size_t>(field); }
    static constexpr std::uint64_t bit(Field field) { return std::uint64_t{1} << index(field); }

    std::uint64_t present_;  // fields that have a value
    std::string_view texts_[most_fields];
    std::int64_t numbers_[most_fields];
  };

  const char* scan_event(const char* at, const Json& json);
  const char* scan_value(Field field, const char* at, const Json& json);
  const char* scan_text(Field field, const char* at, const Json& json);
  const char* scan_number_as_text(Field field, const char* at, const Json& json);
  const char* scan_time(Field field, const char* at, const Json& json);
  const char* scan_long_time(Field field, const char* at, const char* end);
  const char* scan_place(Field field, const char* at, const Json& json);
  const char* scan_id(Field field, const char* at, const Json& json);
  const char* scan_gap(const char* at, const Json& json, bool first, bool in_arguments, Gap& gap) const;
  void commit(const Draft& draft);
  void commit_slice(const Draft& draft);
  void commit_other(const Draft& draft);
  bool commit_memory(const Draft& draft);
  std::int32_t track(const Draft& draft);
  std::int32_t text_or_absent(const Draft& draft, Field field);
  std::int32_t value_or_absent(const Draft& draft, Field field);
  std::uint8_t kind_of_name(std::int32_t name);

  Rules rules_;
  Layout layout_;
  Events events_;
  Expected expected_ = Expected::event_or_end;
  std::vector<std::uint8_t> name_kinds_;  // by text: which arguments are kept, where that has been asked
  std::int32_t last_track_ = -1;
  std::unordered_map<Track, std::int32_t, TrackHash> track_numbers_;
  Draft draft_;
};

}  // namespace tracekit
