// The text in front of each value of an event, such as `,\n    "pid": `, learned while a file is read.
//
// A writer gives all its events the same keys in the same layout. So these texts form a small tree: a path from its
// root is the sequence of texts in front of the values of an event. Text that the tree knows takes one comparison.
// Other text is parsed by the grammar of JSON and then added. No writer's layout is built in.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace tracekit {

// What the value behind a text is, or which object ends there. The arguments are in the order of `argument_keys`.
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
  source_rank,
  destination_rank,
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

class KeyTrie {
 public:
  static constexpr std::int32_t root = 0;
  static constexpr std::int32_t unknown = -1;
  // The longest text that is learned.
  static constexpr std::size_t max_bytes = 56;

  KeyTrie() : nodes_(1) {}

  // Returns the child of `node` whose text is at `at`, or `unknown`. May read up to `max_bytes` bytes.
  std::int32_t find(std::int32_t node, const char* at) const {
    if (node == unknown) return unknown;
    for (std::int32_t child = nodes_[node].first_child; child != unknown; child = nodes_[child].next_sibling) {
      if (nodes_[child].matches(at)) return child;
    }
    return unknown;
  }

  // Adds a child to `node` and returns it, or `unknown` when the text is too long or the tree is full. `key_at`: for
  // an extra argument, where in the text its key begins; else 0.
  std::int32_t learn(std::int32_t node, std::string_view text, Field field, std::size_t key_at) {
    if (node == unknown || text.size() > max_bytes || nodes_.size() == max_nodes) return unknown;
    if (nodes_[node].children == max_children) return unknown;
    const auto child = static_cast<std::int32_t>(nodes_.size());
    Node fresh;
    std::memcpy(fresh.text, text.data(), text.size());
    fresh.size = static_cast<std::uint8_t>(text.size());
    std::memset(&fresh.last_mask, 0xFF, (text.size() - 1) % 8 + 1);
    fresh.field = field;
    fresh.key_at = static_cast<std::uint8_t>(key_at);
    // Behind its siblings: frequent texts are met early, and so are compared first.
    std::int32_t* link = &nodes_[node].first_child;
    while (*link != unknown) link = &nodes_[*link].next_sibling;
    *link = child;
    nodes_.push_back(fresh);
    ++nodes_[node].children;
    return child;
  }

  Field field(std::int32_t node) const { return nodes_[node].field; }
  std::size_t size(std::int32_t node) const { return nodes_[node].size; }
  std::size_t key_at(std::int32_t node) const { return nodes_[node].key_at; }

 private:
  static constexpr std::size_t max_nodes = 4096;
  static constexpr std::uint8_t max_children = 16;

  struct Node {
    char text[max_bytes] = {};  // zeros behind its end
    std::uint64_t last_mask = 0;  // which bytes of the last eight are text
    std::uint8_t size = 0;
    std::uint8_t key_at = 0;
    Field field = Field::ignored;
    std::uint8_t children = 0;
    std::int32_t first_child = unknown;
    std::int32_t next_sibling = unknown;

    bool matches(const char* at) const {
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
