"""The worker's side: trace files of one rank to a `RankSummary`."""
