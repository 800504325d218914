// What the scanner does with the values of a whole event: which columns they go to.
#include <charconv>

#include "scanner.hpp"

namespace tracekit {

namespace {

constexpr std::size_t max_phases = 64;
constexpr std::uint8_t kind_known = 1, kind_communication = 2, kind_sized = 4;

constexpr Field collective_text_fields[collective_texts] = {
    Field::collective, Field::dtype, Field::group_name, Field::group_description, Field::group_ranks};
constexpr Field collective_number_fields[collective_numbers] = {
    Field::in_elements, Field::out_elements, Field::group_size,
    Field::sequence,    Field::source_rank,  Field::destination_rank};
constexpr Field shape_fields[shape_texts] = {Field::input_shapes, Field::input_types, Field::concrete_inputs};
constexpr Field memory_fields[memory_numbers] = {Field::device_type, Field::device_id, Field::change_bytes,
                                                 Field::allocated_bytes, Field::reserved_bytes};

// Whether the JSON value `text` is an integer in range; sets `number` to it.
bool is_integer(std::string_view text, std::int64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && last == end && -limit_ns < number && number < limit_ns;
}

}  // namespace

void Scanner::commit(const EventFields& fields) {
  if (met_ == rules_.max_events) throw NotUnderstood();
  ++met_;
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
    events.position.push(met_ - 1);
  }
  if (fields.text(Field::category) == "cuda_sync" && fields.has(Field::arguments)) {
    events.synchronisations.at.push(row);
    events.synchronisations.arguments.push(value_or_absent(fields, Field::arguments));
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
  if ((kind & kind_sized) != 0) {
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
  if ((phase == "i" && commit_memory(fields)) || (phase == "C" && commit_counter(fields))) return;
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

// Adds the event if it has a time and arguments; returns whether it has.
bool Scanner::commit_counter(const EventFields& fields) {
  if (!fields.has(Field::start) || !fields.has(Field::arguments)) return false;
  const ProcessOrThread& process = fields.track.process;
  Written& counters = events_.counters;
  counters.at.push(fields.number(Field::start));
  counters.process.push(process.kind == ProcessOrThread::text     ? static_cast<std::int32_t>(process.value)
                        : process.kind == ProcessOrThread::number ? events_.texts.intern(std::to_string(process.value))
                                                                  : absent_text);
  counters.name.push(events_.texts.intern(fields.text(Field::name)));
  counters.arguments.push(value_or_absent(fields, Field::arguments));
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
  if (rules_.sized.count(std::string(text)) != 0) kind |= kind_sized;
  return name_kinds_[index] = kind;
}

}  // namespace tracekit
