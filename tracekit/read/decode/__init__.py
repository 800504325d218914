"""One trace file to columns: two decoders that give the same, native and portable."""
