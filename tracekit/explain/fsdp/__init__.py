"""FSDP and ZeRO: which modules wait for their parameters, and what prefetching or other units would save."""
