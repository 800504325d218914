// The columns that the scanner fills, in file order: those of the portable decoder (read/decode/table.py).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "growing.hpp"

namespace tracekit {

constexpr std::int64_t limit_ns = std::int64_t{1} << 62;  // larger numbers are neither times nor ids
constexpr std::int64_t absent = -1;
constexpr std::int32_t absent_text = -1;

// The `pid` or `tid` of an event.
struct ProcessOrThread {
  enum Kind : std::uint8_t { none, number, text };
  Kind kind = none;
  std::int64_t value = 0;  // the number, or an index into `Events::texts`

  bool operator==(const ProcessOrThread& other) const { return kind == other.kind && value == other.value; }
};

struct Track {
  ProcessOrThread process;
  ProcessOrThread thread;

  bool operator==(const Track& other) const { return process == other.process && thread == other.thread; }
};

struct TrackHash {
  SeededHash hash;

  std::size_t operator()(const Track& track) const {
    const std::uint64_t process = hash.begin(static_cast<std::uint64_t>(track.process.value));
    return static_cast<std::size_t>(hash.then(process, static_cast<std::uint64_t>(track.thread.value)));
  }
};

// A metadata event that names a process or a thread. The last one for the same process or thread counts.
struct Label {
  Track track;
  bool names_process;
  std::int32_t text;
};

constexpr std::size_t collective_texts = 5;    // collective, dtype, group name, description, ranks
constexpr std::size_t collective_numbers = 6;  // elements in, elements out, group size, sequence, source, destination
constexpr std::size_t shape_texts = 3;         // input shapes, input types, concrete inputs

// Arguments of communication events. `row` is the row of the event.
struct Collectives {
  GrowingArray<std::int64_t> row;
  std::array<GrowingArray<std::int32_t>, collective_texts> text;
  std::array<GrowingArray<std::int64_t>, collective_numbers> number;
  std::array<GrowingArray<std::int32_t>, shape_texts> shape;
};

struct Operators {
  GrowingArray<std::int64_t> row;
  std::array<GrowingArray<std::int32_t>, shape_texts> shape;
};

// In the order of `memory_fields`.
constexpr std::size_t memory_numbers = 5;  // device type, device id, change, allocated, reserved

struct Memory {
  GrowingArray<std::int64_t> time_ns;
  std::array<GrowingArray<std::int64_t>, memory_numbers> number;
};

// Events whose arguments are kept as they are written. `at`: the row of a synchronisation, the time of a counter in ns.
struct Written {
  GrowingArray<std::int64_t> at;
  GrowingArray<std::int32_t> process, name;  // of counters
  GrowingArray<std::int32_t> arguments;      // an index into `values`
};

struct Events {
  explicit Events(std::uint64_t seed) : texts(seed), values(seed), extra_args_texts(seed) {}

  GrowingArray<std::int32_t> name, category, track;
  GrowingArray<std::int32_t> shape;  // an index into `values`
  GrowingArray<std::int32_t> extra_args;  // an index into `extra_args_texts`; no rows unless they are kept
  GrowingArray<std::int32_t> position;  // among all events of the file; no rows unless extra arguments are kept
  GrowingArray<std::int64_t> start_ns, duration_ns;
  GrowingArray<std::int64_t> correlation, external_id, sequence_number, forward_thread;
  Collectives collectives;
  Operators operators;
  Memory memory;
  Written synchronisations, counters;
  Interner texts;   // JSON strings without their quotes, escapes not decoded
  Interner values;  // JSON values as they are written
  Interner extra_args_texts;  // members of JSON objects
  std::vector<Track> tracks;
  std::vector<Label> labels;
  std::vector<std::pair<std::string, std::int64_t>> other_phases;
  std::int64_t malformed = 0;
  std::int64_t negative_durations = 0;
};

}  // namespace tracekit
