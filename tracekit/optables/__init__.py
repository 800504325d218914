"""Tables of operations of other tracers: what one shows, by `tracekit optables`. No other part of tracekit needs it."""
