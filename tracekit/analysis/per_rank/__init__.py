"""What a worker does for one rank: it turns trace files into a `RankSummary`."""
