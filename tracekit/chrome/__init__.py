"""Chrome's trace event format, for viewers that read no other format: chrome://tracing, TensorBoard, scripts."""
