// What the scanner collects of a trace: columns in file order, the same as the portable decoder's (read/table.py).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "growing.hpp"

namespace tracekit {

constexpr std::int64_t absent = -1;

// A process or a thread, as the file names it.
struct PlaceId {
  enum Kind : std::uint8_t { none, number, text };
  Kind kind = none;
  std::int64_t value = 0;  // a number, or an index into `Events::texts`

  bool operator==(const PlaceId& other) const { return kind == other.kind && value == other.value; }
};

struct Track {
  PlaceId process;
  PlaceId thread;

  bool operator==(const Track& other) const { return process == other.process && thread == other.thread; }
};

struct TrackHash {
  std::size_t operator()(const Track& track) const {
    const auto process = static_cast<std::uint64_t>(track.process.value);
    const auto thread = static_cast<std::uint64_t>(track.thread.value);
    return static_cast<std::size_t>(process * 0x9E3779B97F4A7C15 + thread);
  }
};

// A metadata event that names a process or a thread; of several for the same one the last counts.
struct Label {
  Track track;
  bool names_process;
  std::int32_t text;
};

constexpr std::size_t collective_texts = 5;    // collective, dtype, group name, description, ranks
constexpr std::size_t collective_numbers = 4;  // elements in, elements out, group size, sequence
constexpr std::size_t shape_texts = 3;         // input shapes, input types, concrete inputs

// Arguments of some events: `row` is the event's.
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
constexpr std::size_t memory_numbers = 5;  // type and id of the device, change, allocated, reserved

struct Memory {
  GrowingArray<std::int64_t> time_ns;
  std::array<GrowingArray<std::int64_t>, memory_numbers> number;
};

struct Events {
  GrowingArray<std::int32_t> name, category, track;
  GrowingArray<std::int32_t> shape;  // an index into `values`
  GrowingArray<std::int32_t> details;  // an index into `detail_texts`; empty unless they are kept
  GrowingArray<std::int64_t> start_ns, duration_ns;
  GrowingArray<std::int64_t> correlation, external_id, sequence_number, forward_thread;
  Collectives collectives;
  Operators operators;
  Memory memory;
  Interner texts;   // what stands between the quotes of a JSON string, escapes and all
  Interner values;  // JSON values as they are written
  Interner detail_texts;  // members of JSON objects
  std::vector<Track> tracks;
  std::vector<Label> labels;
  std::vector<std::pair<std::string, std::int64_t>> other_phases;
  std::int64_t malformed = 0;
  std::int64_t negative_durations = 0;
};

}  // namespace tracekit
