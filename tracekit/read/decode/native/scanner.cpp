#include "scanner.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

namespace tracekit {

namespace {

constexpr std::int64_t limit_ns = std::int64_t{1} << 62;
constexpr std::uint64_t limit_us = static_cast<std::uint64_t>(limit_ns) / 1000;
constexpr double exact_microseconds = 8796093022208.0;  // 2^43: above, a double does not tell nanoseconds apart
constexpr std::ptrdiff_t most_digits = 100;
constexpr std::size_t most_phases = 64;

constexpr std::uint8_t kind_known = 1, kind_communication = 2, kind_multiplying = 4;

constexpr Field first_argument = Field::external_id;

constexpr Field collective_text_fields[collective_texts] = {
    Field::collective, Field::dtype, Field::group_name, Field::group_description, Field::group_ranks};
constexpr Field collective_number_fields[collective_numbers] = {
    Field::in_elements, Field::out_elements, Field::group_size, Field::sequence};
constexpr Field shape_fields[shape_texts] = {Field::input_shapes, Field::input_types, Field::concrete_inputs};
constexpr Field memory_fields[memory_numbers] = {Field::device_type, Field::device_id, Field::change_bytes,
                                                 Field::allocated_bytes, Field::reserved_bytes};

enum class Kind { ignored, text, text_or_number, time, place, id, value };

Kind kind_of(Field field) {
  switch (field) {
    case Field::phase:
    case Field::name:
    case Field::category:
      return Kind::text;
    case Field::start:
    case Field::duration:
      return Kind::time;
    case Field::process:
    case Field::thread:
      return Kind::place;
    case Field::external_id:
    case Field::correlation:
    case Field::sequence_number:
    case Field::forward_thread:
    case Field::in_elements:
    case Field::out_elements:
    case Field::group_size:
    case Field::sequence:
      return Kind::id;
    case Field::collective:
    case Field::dtype:
    case Field::group_name:
    case Field::group_description:
    case Field::group_ranks:
    case Field::label:
      return Kind::text_or_number;
    case Field::input_shapes:
    case Field::input_types:
    case Field::concrete_inputs:
    case Field::grid:
    case Field::device_type:
    case Field::device_id:
    case Field::change_bytes:
    case Field::allocated_bytes:
    case Field::reserved_bytes:
      return Kind::value;
    default:
      return Kind::ignored;
  }
}

bool is_exponent(char character) { return character == 'e' || character == 'E'; }

// A number without a fraction or an exponent.
Json::Integer whole_number(const char* at, const Json& json) {
  const Json::Integer number = json.integer(at);
  if (*number.end == '.' || is_exponent(*number.end)) throw NotUnderstood();
  return number;
}

// Whether `text`, a JSON value, is written as an integer, which goes to `number`.
bool is_integer(std::string_view text, std::int64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && last == end && -limit_ns < number && number < limit_ns;
}

Field field_of_argument(std::string_view key) {
  for (std::size_t index = 0; index < argument_keys.size(); ++index) {
    if (argument_keys[index] == key) return static_cast<Field>(static_cast<std::size_t>(first_argument) + index);
  }
  return Field::ignored;
}

Field field_of_event(std::string_view key) {
  if (key == "ph") return Field::phase;
  if (key == "name") return Field::name;
  if (key == "cat") return Field::category;
  if (key == "ts") return Field::start;
  if (key == "dur") return Field::duration;
  if (key == "pid") return Field::process;
  if (key == "tid") return Field::thread;
  if (key == "args") return Field::arguments;
  return Field::ignored;
}

}  // namespace

const std::array<std::string_view, arguments> argument_keys = {
    "External id",        "correlation",          "Sequence number",
    "Fwd thread id",      "Collective name",      "dtype",
    "In msg nelems",      "Out msg nelems",       "Group size",
    "Process Group Name", "Process Group Description", "Process Group Ranks",
    "Seq",                "Input Dims",           "Input type",
    "Concrete Inputs",    "grid",                 "Device Type",
    "Device Id",          "Bytes",                "Total Allocated",
    "Total Reserved",     "name",
};

std::size_t Scanner::scan(const char* text, std::size_t size) {
  const Json json(text + size);
  const char* at = text;
  try {
    while (expected_ != Expected::nothing) {
      const char* next = Json::skip_space(at);
      if (*next == ']' && expected_ != Expected::event) {
        at = next + 1;
        expected_ = Expected::nothing;
      } else if (expected_ == Expected::comma_or_end) {
        if (*next != ',') json.fail(next);
        at = next + 1;
        expected_ = Expected::event;
      } else {
        if (*next != '{') json.fail(next);
        at = scan_event(next, json);
        expected_ = Expected::comma_or_end;
      }
    }
  } catch (const Incomplete&) {
  }
  return static_cast<std::size_t>(at - text);
}

const char* Scanner::scan_event(const char* at, const Json& json) {
  Draft& draft = draft_;
  draft.clear();
  std::int32_t node = Layout::root;
  bool first = true, in_arguments = false;
  const char *run_begin = nullptr, *run_end = nullptr;  // of details
  for (;;) {
    Gap gap;
    const char* const begin = at;
    const std::int32_t known = layout_.find(node, at);
    if (known != Layout::unknown) {
      gap = {layout_.field(known), layout_.key_at(known)};
      at += layout_.size(known);
      node = known;
    } else {
      const char* end = scan_gap(at, json, first, in_arguments, gap);
      node = layout_.learn(node, {at, static_cast<std::size_t>(end - at)}, gap.field, gap.key_at);
      at = end;
    }
    first = false;
    if (gap.key_at != 0) {
      if (run_begin == nullptr) run_begin = begin + gap.key_at;
      run_end = at = scan_value(gap.field, at, json);
      continue;
    }
    if (run_begin != nullptr) {
      draft.details.add({run_begin, static_cast<std::size_t>(run_end - run_begin)});
      run_begin = nullptr;
    }
    if (gap.field == Field::end_of_event) break;
    if (gap.field == Field::end_of_arguments) {
      in_arguments = false;
    } else if (gap.field == Field::arguments) {
      draft.unset_from(first_argument);  // of two the last counts
      draft.details.clear();
      at = Json::skip_space(at);
      if (*at == '{') {
        first = in_arguments = true;
      } else {
        at = json.skip_literal(at, "null");
      }
    } else {
      at = scan_value(gap.field, at, json);
    }
  }
  commit(draft);
  return at;
}

// From a `{` or the end of a value to the next value, or behind the `}`; says in `gap` what comes.
const char* Scanner::scan_gap(const char* at, const Json& json, bool first, bool in_arguments, Gap& gap) const {
  const char* const begin = at;
  gap.key_at = 0;
  at = Json::skip_space(first ? at + 1 : at);
  if (*at == '}') {
    gap.field = in_arguments ? Field::end_of_arguments : Field::end_of_event;
    return at + 1;
  }
  if (!first) {
    if (*at != ',') json.fail(at);
    at = Json::skip_space(at + 1);
  }
  if (*at != '"') json.fail(at);
  const Json::String key = json.string(at + 1);
  if (!key.plain) throw NotUnderstood();
  gap.field = in_arguments ? field_of_argument(key.text) : field_of_event(key.text);
  if (in_arguments && rules_.keeps_details && rules_.no_details.count(std::string(key.text)) == 0) {
    gap.key_at = static_cast<std::size_t>(at - begin);
  }
  at = Json::skip_space(key.end);
  if (*at != ':') json.fail(at);
  at = Json::skip_space(at + 1);
  if (*at == '\0') json.fail(at);  // more space may follow
  return at;
}

const char* Scanner::scan_value(Field field, const char* at, const Json& json) {
  at = Json::skip_space(at);
  switch (kind_of(field)) {
    case Kind::ignored:
      return json.skip_value(at);
    case Kind::value: {
      const char* end = json.skip_value(at);
      draft_.set(field, std::string_view(at, static_cast<std::size_t>(end - at)));
      return end;
    }
    default:
      break;
  }
  if (*at == 'n') {
    draft_.unset(field);
    return json.skip_literal(at, "null");
  }
  switch (kind_of(field)) {
    case Kind::text:
      return scan_text(field, at, json);
    case Kind::text_or_number:
      return *at == '"' ? scan_text(field, at, json) : scan_number_as_text(field, at, json);
    case Kind::time:
      return scan_time(field, at, json);
    case Kind::place:
      return scan_place(field, at, json);
    default:
      return scan_id(field, at, json);
  }
}

const char* Scanner::scan_text(Field field, const char* at, const Json& json) {
  if (*at != '"') json.fail(at);
  const Json::String string = json.string(at + 1);
  // Whether it can be decoded is found out at the end, also where the event is not kept.
  if (!string.plain) events_.texts.intern(string.text);
  draft_.set(field, string.text);
  return string.end;
}

const char* Scanner::scan_number_as_text(Field field, const char* at, const Json& json) {
  const Json::Integer number = whole_number(at, json);
  const std::string_view text(at, static_cast<std::size_t>(number.end - at));
  if (text == "-0" || number.digits > most_digits) throw NotUnderstood();
  draft_.set(field, text);
  return number.end;
}

// Microseconds to nanoseconds.
const char* Scanner::scan_time(Field field, const char* at, const Json& json) {
  const Json::Integer whole = json.integer(at);
  const char* end = whole.end;
  std::uint64_t thousandths = 0;
  if (*end == '.') {
    const char* fraction = end + 1;
    end = json.skip_digits(fraction);
    if (end - fraction > 3) return scan_long_time(field, at, end);
    for (const char* digit = fraction; digit != fraction + 3; ++digit) {
      thousandths = thousandths * 10 + (digit < end ? static_cast<unsigned>(*digit - '0') : 0);
    }
  }
  if (is_exponent(*end) || whole.digits > most_digits) throw NotUnderstood();
  const bool in_range = whole.digits <= 18 && whole.magnitude <= limit_us &&
                        whole.magnitude * 1000 + thousandths < static_cast<std::uint64_t>(limit_ns);
  if (in_range) {
    const auto nanoseconds = static_cast<std::int64_t>(whole.magnitude * 1000 + thousandths);
    draft_.set(field, whole.negative ? -nanoseconds : nanoseconds);
  } else {
    draft_.unset(field);
  }
  return end;
}

// With more than three decimals: as the portable decoder rounds it, through a double where that is exact enough.
const char* Scanner::scan_long_time(Field field, const char* at, const char* end) {
  double microseconds = 0;
  const auto [last, error] = std::from_chars(at, end, microseconds);
  const bool good = error == std::errc() && last == end && std::fabs(microseconds) < exact_microseconds;
  if (!good || is_exponent(*end)) throw NotUnderstood();
  const double whole = std::floor(microseconds);
  draft_.set(field, static_cast<std::int64_t>(whole) * 1000 + std::llrint((microseconds - whole) * 1000));
  return end;
}

const char* Scanner::scan_place(Field field, const char* at, const Json& json) {
  PlaceId& id = field == Field::process ? draft_.track.process : draft_.track.thread;
  if (*at == '"') {
    const Json::String string = json.string(at + 1);
    // Two ways to write one text would be two places.
    if (!string.plain && string.text.find('\\') != std::string_view::npos) throw NotUnderstood();
    id = PlaceId{PlaceId::text, events_.texts.intern(string.text)};
    return string.end;
  }
  const Json::Integer number = whole_number(at, json);
  if (number.digits > 18) throw NotUnderstood();
  const auto value = static_cast<std::int64_t>(number.magnitude);
  id = PlaceId{PlaceId::number, number.negative ? -value : value};
  return number.end;
}

const char* Scanner::scan_id(Field field, const char* at, const Json& json) {
  const Json::Integer number = whole_number(at, json);
  if (number.digits > most_digits) throw NotUnderstood();
  const bool in_range = number.digits <= 19 && number.magnitude < static_cast<std::uint64_t>(limit_ns);
  const auto value = static_cast<std::int64_t>(number.magnitude);
  draft_.set(field, !in_range ? absent : number.negative ? -value : value);
  return number.end;
}

void Scanner::commit(const Draft& draft) {
  if (!draft.has(Field::phase)) {
    ++events_.malformed;
    return;
  }
  const std::string_view phase = draft.text(Field::phase);
  if (phase == "X") {
    commit_slice(draft);
  } else {
    commit_other(draft);
  }
}

void Scanner::commit_slice(const Draft& draft) {
  if (!draft.has(Field::start) || !draft.has(Field::duration)) {
    ++events_.malformed;
    return;
  }
  if (draft.number(Field::duration) < 0) {
    ++events_.negative_durations;
    return;
  }
  Events& events = events_;
  const auto row = static_cast<std::int64_t>(events.name.size());
  const std::int32_t name = events.texts.intern(draft.text(Field::name));
  events.name.push(name);
  events.category.push(events.texts.intern(draft.text(Field::category)));
  events.track.push(track(draft));
  events.start_ns.push(draft.number(Field::start));
  events.duration_ns.push(draft.number(Field::duration));
  events.correlation.push(draft.number(Field::correlation));
  events.external_id.push(draft.number(Field::external_id));
  events.sequence_number.push(draft.number(Field::sequence_number));
  events.forward_thread.push(draft.number(Field::forward_thread));
  events.shape.push(value_or_absent(draft, draft.has(Field::input_shapes) ? Field::input_shapes : Field::grid));
  if (rules_.keeps_details) {
    const std::string_view said = draft.details.text();
    events.details.push(said.empty() ? -1 : events.detail_texts.intern(said));
  }
  const std::uint8_t kind = kind_of_name(name);
  if (draft.has(Field::collective) || (kind & kind_communication) != 0) {
    Collectives& collectives = events.collectives;
    collectives.row.push(row);
    for (std::size_t k = 0; k < collective_texts; ++k) {
      collectives.text[k].push(text_or_absent(draft, collective_text_fields[k]));
    }
    for (std::size_t k = 0; k < collective_numbers; ++k) {
      collectives.number[k].push(draft.number(collective_number_fields[k]));
    }
    for (std::size_t k = 0; k < shape_texts; ++k) {
      collectives.shape[k].push(value_or_absent(draft, shape_fields[k]));
    }
  }
  if ((kind & kind_multiplying) != 0) {
    events.operators.row.push(row);
    for (std::size_t k = 0; k < shape_texts; ++k) {
      events.operators.shape[k].push(value_or_absent(draft, shape_fields[k]));
    }
  }
}

void Scanner::commit_other(const Draft& draft) {
  const std::string_view phase = draft.text(Field::phase);
  // Pairs of B and E need a stack a thread: no profiler of PyTorch writes them.
  if (phase == "B" || phase == "E" || phase.find('\\') != std::string_view::npos) throw NotUnderstood();
  if (phase == "i" && commit_memory(draft)) return;
  auto& counts = events_.other_phases;
  std::size_t place = 0;
  while (place < counts.size() && counts[place].first != phase) ++place;
  if (place == most_phases) throw NotUnderstood();
  if (place == counts.size()) counts.emplace_back(phase, 0);
  ++counts[place].second;
  if (phase != "M" || !draft.has(Field::label)) return;
  const std::string_view name = draft.text(Field::name);
  if (name.find('\\') != std::string_view::npos) throw NotUnderstood();
  if (name == "process_name" || name == "thread_name") {
    const std::int32_t text = events_.texts.intern(draft.text(Field::label));
    events_.labels.push_back(Label{draft.track, name == "process_name", text});
  }
}

// Whether it is a record of memory that can be used.
bool Scanner::commit_memory(const Draft& draft) {
  std::int64_t number;
  if (!draft.has(Field::start) || !is_integer(draft.text(Field::change_bytes), number)) return false;
  const std::string_view name = draft.text(Field::name);
  if (name.find('\\') != std::string_view::npos) throw NotUnderstood();
  if (name != "[memory]") return false;
  Memory& memory = events_.memory;
  memory.time_ns.push(draft.number(Field::start));
  for (std::size_t k = 0; k < memory_numbers; ++k) {
    memory.number[k].push(is_integer(draft.text(memory_fields[k]), number) ? number : absent);
  }
  return true;
}

std::int32_t Scanner::track(const Draft& draft) {
  std::vector<Track>& tracks = events_.tracks;
  if (last_track_ >= 0 && tracks[static_cast<std::size_t>(last_track_)] == draft.track) return last_track_;
  const auto [place, fresh] = track_numbers_.try_emplace(draft.track, static_cast<std::int32_t>(tracks.size()));
  if (fresh) tracks.push_back(draft.track);
  return last_track_ = place->second;
}

std::int32_t Scanner::text_or_absent(const Draft& draft, Field field) {
  return draft.has(field) ? events_.texts.intern(draft.text(field)) : -1;
}

std::int32_t Scanner::value_or_absent(const Draft& draft, Field field) {
  return draft.has(field) ? events_.values.intern(draft.text(field)) : -1;
}

std::uint8_t Scanner::kind_of_name(std::int32_t name) {
  const auto place = static_cast<std::size_t>(name);
  if (place >= name_kinds_.size()) name_kinds_.resize(events_.texts.size() * 2 + 64, 0);
  if (name_kinds_[place] != 0) return name_kinds_[place];
  const std::string_view text = events_.texts.texts()[place];
  // An escape may stand for a letter that the rules ask for.
  for (std::size_t at = text.find("\\u00"); at != std::string_view::npos; at = text.find("\\u00", at + 1)) {
    if (at + 4 < text.size() && text[at + 4] < '8') throw NotUnderstood();
  }
  std::uint8_t kind = kind_known;
  for (const std::string& prefix : rules_.communication_prefixes) {
    if (text.substr(0, prefix.size()) == prefix) kind |= kind_communication;
  }
  if (rules_.multiplying.count(std::string(text)) != 0) kind |= kind_multiplying;
  return name_kinds_[place] = kind;
}

}  // namespace tracekit
