// Turns the events of a trace into columns, in one pass over text that comes in pieces.
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
#include "key_trie.hpp"

namespace tracekit {

// For which events which arguments are kept.
struct Rules {
  std::vector<std::string> communication_prefixes;
  std::unordered_set<std::string> sized;
  bool keeps_extra_args = false;
  std::unordered_set<std::string> excluded_args;  // see read/decode/extra_args.py
  std::int32_t max_events = INT32_MAX;            // of a file; of more only the portable decoder says what is done
  std::uint64_t seed = 0;                         // of hash tables: random, and without effect on the columns
};

// The arguments of events that are kept, in the order of `Field`.
constexpr std::size_t arguments =
    static_cast<std::size_t>(Field::label) - static_cast<std::size_t>(Field::external_id) + 1;
extern const std::array<std::string_view, arguments> argument_keys;

static_assert(KeyTrie::max_bytes + 8 <= padding_bytes, "a comparison must not leave the text and its padding");

class Scanner {
 public:
  explicit Scanner(Rules rules)
      : rules_(std::move(rules)), events_(rules_.seed), track_numbers_(64, TrackHash{SeededHash(rules_.seed)}) {}

  // Scans text behind the `[` of the events, up to the end of the last whole event, or past the `]` that closes the
  // array. Returns how many bytes that is; the next call must begin with the remaining ones. `padding_bytes` zeros must
  // follow the text. Throws NotUnderstood, after which this scanner cannot be used any more.
  std::size_t scan(const char* text, std::size_t size);

  // Whether the closing `]` was met.
  bool closed() const { return expected_ == Expected::nothing; }
  Events& events() { return events_; }

 private:
  enum class Expected { event_or_end, event, comma_or_end, nothing };

  // What the next value is. `key_at`: as in `KeyTrie`.
  struct KeyPrefix {
    Field field;
    std::size_t key_at;
  };

  // The extra arguments of one event, as members of a JSON object. Neighbours in the text are one run; a single run is
  // not copied.
  class ExtraArgs {
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

  // The values of one event. A text is a view of the scanned text: a string without its quotes, or any other value as
  // it is written. Times are in nanoseconds.
  class EventFields {
   public:
    Track track;
    ExtraArgs extra_args;

    void clear() {
      present_ = 0;
      track = Track();
      extra_args.clear();
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
      if (field == Field::process) track.process = ProcessOrThread();
      if (field == Field::thread) track.thread = ProcessOrThread();
    }
    void unset_from(Field field) { present_ &= bit(field) - 1; }

   private:
    static constexpr std::size_t max_fields = 64;
    static_assert(static_cast<std::size_t>(Field::label) < max_fields);

    static constexpr std::size_t index(Field field) { return static_cast<std::size_t>(field); }
    static constexpr std::uint64_t bit(Field field) { return std::uint64_t{1} << index(field); }

    std::uint64_t present_;  // fields that have a value
    std::string_view texts_[max_fields];
    std::int64_t numbers_[max_fields];
  };

  const char* scan_event(const char* at, const Json& json);
  const char* scan_value(Field field, const char* at, const Json& json);
  const char* scan_text(Field field, const char* at, const Json& json);
  const char* scan_number_as_text(Field field, const char* at, const Json& json);
  const char* scan_time(Field field, const char* at, const Json& json);
  const char* scan_long_time(Field field, const char* at, const char* end);
  const char* scan_process_or_thread(Field field, const char* at, const Json& json);
  const char* scan_id(Field field, const char* at, const Json& json);
  const char* scan_key(const char* at, const Json& json, bool first, bool in_arguments, KeyPrefix& prefix) const;
  void commit(const EventFields& fields);
  void commit_slice(const EventFields& fields);
  void commit_other(const EventFields& fields);
  bool commit_memory(const EventFields& fields);
  bool commit_counter(const EventFields& fields);
  std::int32_t track(const EventFields& fields);
  std::int32_t text_or_absent(const EventFields& fields, Field field);
  std::int32_t value_or_absent(const EventFields& fields, Field field);
  std::uint8_t kind_of_name(std::int32_t name);

  Rules rules_;
  KeyTrie keys_;
  Events events_;
  Expected expected_ = Expected::event_or_end;
  std::vector<std::uint8_t> name_kinds_;  // by text: kinds of names, 0 where not yet known
  std::int32_t last_track_ = -1;
  std::int32_t met_ = 0;  // events that were met so far
  std::unordered_map<Track, std::int32_t, TrackHash> track_numbers_;
  EventFields fields_;
};

}  // namespace tracekit
