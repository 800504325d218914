#include "scanner.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

namespace tracekit {

namespace {

constexpr std::int64_t limit_ns = std::int64_t{1} << 62;
constexpr std::uint64_t limit_us = static_cast<std::uint64_t>(limit_ns) / 1000;
constexpr double exact_microseconds = 8796093022208.0;  // 2^43: above it, a double has no nanoseconds
constexpr std::ptrdiff_t max_digits = 100;
constexpr std::size_t max_phases = 64;

constexpr std::uint8_t kind_known = 1, kind_communication = 2, kind_multiplying = 4;

constexpr Field first_argument = Field::external_id;

constexpr Field collective_text_fields[collective_texts] = {
    Field::collective, Field::dtype, Field::group_name, Field::group_description, Field::group_ranks};
constexpr Field collective_number_fields[collective_numbers] = {
    Field::in_elements, Field::out_elements, Field::group_size, Field::sequence};
constexpr Field shape_fields[shape_texts] = {Field::input_shapes, Field::input_types, Field::concrete_inputs};
constexpr Field memory_fields[memory_numbers] = {Field::device_type, Field::device_id, Field::change_bytes,
                                                 Field::allocated_bytes, Field::reserved_bytes};

enum class Kind { ignored, text, text_or_number, time, process_or_thread, id, value };

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
      return Kind::process_or_thread;
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

// Reads a number without a fraction or an exponent.
Json::Integer whole_number(const char* at, const Json& json) {
  const Json::Integer number = json.integer(at);
  if (*number.end == '.' || is_exponent(*number.end)) throw NotUnderstood();
  return number;
}

// Whether the JSON value `text` is an integer in range; sets `number` to it.
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
  EventFields& fields = fields_;
  fields.clear();
  std::int32_t node = KeyTrie::root;
  bool first = true, in_arguments = false;
  const char *run_begin = nullptr, *run_end = nullptr;  // of extra arguments
  for (;;) {
    KeyPrefix prefix;
    const char* const begin = at;
    const std::int32_t known = keys_.find(node, at);
    if (known != KeyTrie::unknown) {
      prefix = {keys_.field(known), keys_.key_at(known)};
      at += keys_.size(known);
      node = known;
    } else {
      const char* end = scan_key(at, json, first, in_arguments, prefix);
      node = keys_.learn(node, {at, static_cast<std::size_t>(end - at)}, prefix.field, prefix.key_at);
      at = end;
    }
    first = false;
    if (prefix.key_at != 0) {
      if (run_begin == nullptr) run_begin = begin + prefix.key_at;
      run_end = at = scan_value(prefix.field, at, json);
      continue;
    }
    if (run_begin != nullptr) {
      fields.extra_args.add({run_begin, static_cast<std::size_t>(run_end - run_begin)});
      run_begin = nullptr;
    }
    if (prefix.field == Field::end_of_event) break;
    if (prefix.field == Field::end_of_arguments) {
      in_arguments = false;
    } else if (prefix.field == Field::arguments) {
      fields.unset_from(first_argument);  // the last of several "args" counts
      fields.extra_args.clear();
      at = Json::skip_space(at);
      if (*at == '{') {
        first = in_arguments = true;
      } else {
        at = json.skip_literal(at, "null");
      }
    } else {
      at = scan_value(prefix.field, at, json);
    }
  }
  commit(fields);
  return at;
}

// Goes from a `{` or the end of a value to the next value, or behind the `}`, and sets `prefix` to what comes there.
const char* Scanner::scan_key(const char* at, const Json& json, bool first, bool in_arguments,
                              KeyPrefix& prefix) const {
  const char* const begin = at;
  prefix.key_at = 0;
  at = Json::skip_space(first ? at + 1 : at);
  if (*at == '}') {
    prefix.field = in_arguments ? Field::end_of_arguments : Field::end_of_event;
    return at + 1;
  }
  if (!first) {
    if (*at != ',') json.fail(at);
    at = Json::skip_space(at + 1);
  }
  if (*at != '"') json.fail(at);
  const Json::String key = json.string(at + 1);
  if (!key.plain) throw NotUnderstood();
  prefix.field = in_arguments ? field_of_argument(key.text) : field_of_event(key.text);
  if (in_arguments && rules_.keeps_extra_args && rules_.excluded_args.count(std::string(key.text)) == 0) {
    prefix.key_at = static_cast<std::size_t>(at - begin);
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
      fields_.set(field, std::string_view(at, static_cast<std::size_t>(end - at)));
      return end;
    }
    default:
      break;
  }
  if (*at == 'n') {
    fields_.unset(field);
    return json.skip_literal(at, "null");
  }
  switch (kind_of(field)) {
    case Kind::text:
      return scan_text(field, at, json);
    case Kind::text_or_number:
      return *at == '"' ? scan_text(field, at, json) : scan_number_as_text(field, at, json);
    case Kind::time:
      return scan_time(field, at, json);
    case Kind::process_or_thread:
      return scan_process_or_thread(field, at, json);
    default:
      return scan_id(field, at, json);
  }
}

const char* Scanner::scan_text(Field field, const char* at, const Json& json) {
  if (*at != '"') json.fail(at);
  const Json::String string = json.string(at + 1);
  // All such texts are decoded at the end, also those of events that are dropped: a bad one leaves the file to the
  // portable decoder.
  if (!string.plain) events_.texts.intern(string.text);
  fields_.set(field, string.text);
  return string.end;
}

const char* Scanner::scan_number_as_text(Field field, const char* at, const Json& json) {
  const Json::Integer number = whole_number(at, json);
  const std::string_view text(at, static_cast<std::size_t>(number.end - at));
  if (text == "-0" || number.digits > max_digits) throw NotUnderstood();
  fields_.set(field, text);
  return number.end;
}

// Reads microseconds, kept as nanoseconds.
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
  if (is_exponent(*end) || whole.digits > max_digits) throw NotUnderstood();
  const bool in_range = whole.digits <= 18 && whole.magnitude <= limit_us &&
                        whole.magnitude * 1000 + thousandths < static_cast<std::uint64_t>(limit_ns);
  if (in_range) {
    const auto nanoseconds = static_cast<std::int64_t>(whole.magnitude * 1000 + thousandths);
    fields_.set(field, whole.negative ? -nanoseconds : nanoseconds);
  } else {
    fields_.unset(field);
  }
  return end;
}

// Reads a time with more than three decimals. It is rounded as the portable decoder does it, through a double.
const char* Scanner::scan_long_time(Field field, const char* at, const char* end) {
  double microseconds = 0;
  const auto [last, error] = std::from_chars(at, end, microseconds);
  const bool good = error == std::errc() && last == end && std::fabs(microseconds) < exact_microseconds;
  if (!good || is_exponent(*end)) throw NotUnderstood();
  const double whole = std::floor(microseconds);
  fields_.set(field, static_cast<std::int64_t>(whole) * 1000 + std::llrint((microseconds - whole) * 1000));
  return end;
}

const char* Scanner::scan_process_or_thread(Field field, const char* at, const Json& json) {
  ProcessOrThread& id = field == Field::process ? fields_.track.process : fields_.track.thread;
  if (*at == '"') {
    const Json::String string = json.string(at + 1);
    // With escapes one name can be written in two ways, which would be two tracks.
    if (!string.plain && string.text.find('\\') != std::string_view::npos) throw NotUnderstood();
    id = ProcessOrThread{ProcessOrThread::text, events_.texts.intern(string.text)};
    return string.end;
  }
  const Json::Integer number = whole_number(at, json);
  if (number.digits > 18) throw NotUnderstood();
  const auto value = static_cast<std::int64_t>(number.magnitude);
  id = ProcessOrThread{ProcessOrThread::number, number.negative ? -value : value};
  return number.end;
}

const char* Scanner::scan_id(Field field, const char* at, const Json& json) {
  const Json::Integer number = whole_number(at, json);
  if (number.digits > max_digits) throw NotUnderstood();
  const bool in_range = number.digits <= 19 && number.magnitude < static_cast<std::uint64_t>(limit_ns);
  const auto value = static_cast<std::int64_t>(number.magnitude);
  fields_.set(field, !in_range ? absent : number.negative ? -value : value);
  return number.end;
}

void Scanner::commit(const EventFields& fields) {
  if (!fields.has(Field::phase)) {
    ++events_.malformed;
    return;
  }
  const std::string_view phase = fields.text(Field::phase);
  if (phase == "X") {
    commit_slice(fields);
  } else {
    commit_other(fields);
  }
}

void Scanner::commit_slice(const EventFields& fields) {
  if (!fields.has(Field::start) || !fields.has(Field::duration)) {
    ++events_.malformed;
    return;
  }
  if (fields.number(Field::duration) < 0) {
    ++events_.negative_durations;
    return;
  }
  Events& events = events_;
  const auto row = static_cast<std::int64_t>(events.name.size());
  const std::int32_t name = events.texts.intern(fields.text(Field::name));
  events.name.push(name);
  events.category.push(events.texts.intern(fields.text(Field::category)));
  events.track.push(track(fields));
  events.start_ns.push(fields.number(Field::start));
  events.duration_ns.push(fields.number(Field::duration));
  events.correlation.push(fields.number(Field::correlation));
  events.external_id.push(fields.number(Field::external_id));
  events.sequence_number.push(fields.number(Field::sequence_number));
  events.forward_thread.push(fields.number(Field::forward_thread));
  events.shape.push(value_or_absent(fields, fields.has(Field::input_shapes) ? Field::input_shapes : Field::grid));
  if (rules_.keeps_extra_args) {
    const std::string_view members = fields.extra_args.text();
    events.extra_args.push(members.empty() ? absent_text : events.extra_args_texts.intern(members));
  }
  const std::uint8_t kind = kind_of_name(name);
  if (fields.has(Field::collective) || (kind & kind_communication) != 0) {
    Collectives& collectives = events.collectives;
    collectives.row.push(row);
    for (std::size_t k = 0; k < collective_texts; ++k) {
      collectives.text[k].push(text_or_absent(fields, collective_text_fields[k]));
    }
    for (std::size_t k = 0; k < collective_numbers; ++k) {
      collectives.number[k].push(fields.number(collective_number_fields[k]));
    }
    for (std::size_t k = 0; k < shape_texts; ++k) {
      collectives.shape[k].push(value_or_absent(fields, shape_fields[k]));
    }
  }
  if ((kind & kind_multiplying) != 0) {
    events.operators.row.push(row);
    for (std::size_t k = 0; k < shape_texts; ++k) {
      events.operators.shape[k].push(value_or_absent(fields, shape_fields[k]));
    }
  }
}

void Scanner::commit_other(const EventFields& fields) {
  const std::string_view phase = fields.text(Field::phase);
  // Pairs of B and E would need a stack for each thread, and no profiler of PyTorch writes them.
  if (phase == "B" || phase == "E" || phase.find('\\') != std::string_view::npos) throw NotUnderstood();
  if (phase == "i" && commit_memory(fields)) return;
  auto& counts = events_.other_phases;
  std::size_t index = 0;
  while (index < counts.size() && counts[index].first != phase) ++index;
  if (index == max_phases) throw NotUnderstood();
  if (index == counts.size()) counts.emplace_back(phase, 0);
  ++counts[index].second;
  if (phase != "M" || !fields.has(Field::label)) return;
  const std::string_view name = fields.text(Field::name);
  if (name.find('\\') != std::string_view::npos) throw NotUnderstood();
  if (name == "process_name" || name == "thread_name") {
    const std::int32_t text = events_.texts.intern(fields.text(Field::label));
    events_.labels.push_back(Label{fields.track, name == "process_name", text});
  }
}

// Adds the event if it is a usable memory record; returns whether it is one.
bool Scanner::commit_memory(const EventFields& fields) {
  std::int64_t number;
  if (!fields.has(Field::start) || !is_integer(fields.text(Field::change_bytes), number)) return false;
  const std::string_view name = fields.text(Field::name);
  if (name.find('\\') != std::string_view::npos) throw NotUnderstood();
  if (name != "[memory]") return false;
  Memory& memory = events_.memory;
  memory.time_ns.push(fields.number(Field::start));
  for (std::size_t k = 0; k < memory_numbers; ++k) {
    memory.number[k].push(is_integer(fields.text(memory_fields[k]), number) ? number : absent);
  }
  return true;
}

std::int32_t Scanner::track(const EventFields& fields) {
  std::vector<Track>& tracks = events_.tracks;
  if (last_track_ >= 0 && tracks[static_cast<std::size_t>(last_track_)] == fields.track) return last_track_;
  const auto [entry, is_new] = track_numbers_.try_emplace(fields.track, static_cast<std::int32_t>(tracks.size()));
  if (is_new) tracks.push_back(fields.track);
  return last_track_ = entry->second;
}

std::int32_t Scanner::text_or_absent(const EventFields& fields, Field field) {
  return fields.has(field) ? events_.texts.intern(fields.text(field)) : absent_text;
}

std::int32_t Scanner::value_or_absent(const EventFields& fields, Field field) {
  return fields.has(field) ? events_.values.intern(fields.text(field)) : absent_text;
}

std::uint8_t Scanner::kind_of_name(std::int32_t name) {
  const auto index = static_cast<std::size_t>(name);
  if (index >= name_kinds_.size()) name_kinds_.resize(events_.texts.size() * 2 + 64, 0);
  if (name_kinds_[index] != 0) return name_kinds_[index];
  const std::string_view text = events_.texts.texts()[index];
  // An escaped letter could be one that the rules look for.
  for (std::size_t at = text.find("\\u00"); at != std::string_view::npos; at = text.find("\\u00", at + 1)) {
    if (at + 4 < text.size() && text[at + 4] < '8') throw NotUnderstood();
  }
  std::uint8_t kind = kind_known;
  for (const std::string& prefix : rules_.communication_prefixes) {
    if (text.substr(0, prefix.size()) == prefix) kind |= kind_communication;
  }
  if (rules_.multiplying.count(std::string(text)) != 0) kind |= kind_multiplying;
  return name_kinds_[index] = kind;
}

}  // namespace tracekit
