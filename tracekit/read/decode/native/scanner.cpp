#include "scanner.hpp"

#include <charconv>
#include <cmath>
#include <utility>

namespace tracekit {

namespace {

constexpr std::uint64_t limit_us = static_cast<std::uint64_t>(limit_ns) / 1000;
constexpr double exact_microseconds = 8796093022208.0;  // 2^43: above it, a double has no nanoseconds
constexpr std::ptrdiff_t max_digits = 100;

constexpr Field first_argument = Field::external_id;

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
    case Field::source_rank:
    case Field::destination_rank:
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
    "Seq",                "Src Rank",             "Dst Rank",
    "Input Dims",         "Input type",           "Concrete Inputs",
    "grid",               "Device Type",          "Device Id",
    "Bytes",              "Total Allocated",      "Total Reserved",
    "name",
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
  const char* arguments_begin = nullptr;
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
      fields.set(Field::arguments, {arguments_begin, static_cast<std::size_t>(at - arguments_begin)});
    } else if (prefix.field == Field::arguments) {
      fields.unset_from(Field::arguments);  // the last of several "args" counts
      fields.extra_args.clear();
      at = Json::skip_space(at);
      if (*at == '{') {
        first = in_arguments = true;
        arguments_begin = at;
      } else {
        at = json.skip_literal(at, "null");
        // The tree knows keys of arguments here, too.
        const char* const next = Json::skip_space(at);
        if (*next != ',' && *next != '}') json.fail(next);
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

}  // namespace tracekit
