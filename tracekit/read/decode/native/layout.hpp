// What stands between two values of an event: `,\n    "pid": ` and the like.
//
// A writer lays its events out alike, so this text is learned: a tree in which a path from the root is what stood
// between the values of an event so far. Text that is known needs one comparison instead of being taken apart, and
// whatever is not known is taken apart by the grammar and then learned. No writer's layout is built in.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace tracekit {

// What the value behind a gap is for. The arguments stand in the order of `argument_keys`.
enum class Field : std::uint8_t {
  end_of_event,
  end_of_arguments,
  ignored,
  phase,
  name,
  category,
  start,
  duration,
  process,
  thread,
  arguments,
  external_id,
  correlation,
  sequence_number,
  forward_thread,
  collective,
  dtype,
  in_elements,
  out_elements,
  group_size,
  group_name,
  group_description,
  group_ranks,
  sequence,
  input_shapes,
  input_types,
  concrete_inputs,
  grid,
  device_type,
  device_id,
  change_bytes,
  allocated_bytes,
  reserved_bytes,
  label,
};

class Layout {
 public:
  static constexpr std::int32_t root = 0;
  static constexpr std::int32_t unknown = -1;
  // How far behind the end of a text `find` may look.
  static constexpr std::size_t longest_bytes = 56;

  Layout() : nodes_(1) {}

  // The node behind `node` whose text stands at `at`, or `unknown`.
  std::int32_t find(std::int32_t node, const char* at) const {
    if (node == unknown) return unknown;
    for (std::int32_t child = nodes_[node].first_child; child != unknown; child = nodes_[child].next_sibling) {
      if (nodes_[child].stands_at(at)) return child;
    }
    return unknown;
  }

  // A new node behind `node`, or `unknown` when the text is too long or the tree is full. `key_at`: of an argument
  // that is a detail, where in the text its key begins; else 0.
  std::int32_t learn(std::int32_t node, std::string_view text, Field field, std::size_t key_at) {
    if (node == unknown || text.size() > longest_bytes || nodes_.size() == most_nodes) return unknown;
    if (nodes_[node].children == most_children) return unknown;
    const auto child = static_cast<std::int32_t>(nodes_.size());
    Node fresh;
    std::memcpy(fresh.text, text.data(), text.size());
    fresh.size = static_cast<std::uint8_t>(text.size());
    std::memset(&fresh.last_mask, 0xFF, (text.size() - 1) % 8 + 1);
    fresh.field = field;
    fresh.key_at = static_cast<std::uint8_t>(key_at);
    // Behind the others: what a writer lays out most is met early, and is then compared first.
    std::int32_t* place = &nodes_[node].first_child;
    while (*place != unknown) place = &nodes_[*place].next_sibling;
    *place = child;
    nodes_.push_back(fresh);
    ++nodes_[node].children;
    return child;
  }

  Field field(std::int32_t node) const { return nodes_[node].field; }
  std::size_t size(std::int32_t node) const { return nodes_[node].size; }
  std::size_t key_at(std::int32_t node) const { return nodes_[node].key_at; }

 private:
  static constexpr std::size_t most_nodes = 4096;
  static constexpr std::uint8_t most_children = 16;

  struct Node {
    char text[longest_bytes] = {};  // zeros behind its end
    std::uint64_t last_mask = 0;  // which bytes of the last eight are text
    std::uint8_t size = 0;
    std::uint8_t key_at = 0;
    Field field = Field::ignored;
    std::uint8_t children = 0;
    std::int32_t first_child = unknown;
    std::int32_t next_sibling = unknown;

    bool stands_at(const char* at) const {
      std::size_t done = 0;
      for (; done + 8 < size; done += 8) {
        if (word(at + done) != word(text + done)) return false;
      }
      return ((word(at + done) ^ word(text + done)) & last_mask) == 0;
    }

    static std::uint64_t word(const char* at) {
      std::uint64_t value;
      std::memcpy(&value, at, 8);
      return value;
    }
  };

  std::vector<Node> nodes_;
};

}  // namespace tracekit
