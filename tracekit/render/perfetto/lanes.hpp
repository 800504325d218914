// Rows on which slices nest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace tracekit {

// The lanes of the slices so far, which come in the order in which they open.
class Lanes {
 public:
  Lanes(std::size_t max_depth, std::size_t max_lanes) : max_depth_(max_depth), max_lanes_(max_lanes) {}

  // Returns the first lane in which the slice crosses no open slice, -1 if there is none left.
  std::int32_t add(std::int64_t start_ns, std::int64_t end_ns) {
    for (; !closing_.empty() && closing_.top().first <= start_ns; closing_.pop()) {
      const std::size_t lane = closing_.top().second;
      open_ends_[lane].pop_back();
      latest_ends_[lane] = open_ends_[lane].empty() ? INT64_MAX : open_ends_[lane].back();
    }
    const auto fits = [end_ns](std::int64_t latest_ns) { return end_ns <= latest_ns; };
    const auto found = std::find_if(latest_ends_.begin(), latest_ends_.end(), fits);
    const auto lane = static_cast<std::size_t>(found - latest_ends_.begin());
    if (lane == max_lanes_) return -1;
    if (found == latest_ends_.end()) {
      open_ends_.emplace_back();
      latest_ends_.push_back(INT64_MAX);
    }
    open_ends_[lane].push_back(end_ns);
    latest_ends_[lane] = open_ends_[lane].size() < max_depth_ ? end_ns : INT64_MIN;
    closing_.emplace(end_ns, lane);
    return static_cast<std::int32_t>(lane);
  }

 private:
  using EndAndLane = std::pair<std::int64_t, std::size_t>;

  std::size_t max_depth_, max_lanes_;
  std::vector<std::vector<std::int64_t>> open_ends_;  // a stack for each lane
  std::vector<std::int64_t> latest_ends_;             // that a slice may have to fit into each lane
  std::priority_queue<EndAndLane, std::vector<EndAndLane>, std::greater<>> closing_;  // the open slices
};

}  // namespace tracekit
