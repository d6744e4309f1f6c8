"""Records a training job in the Linux kernel and keeps the recording in a trace directory."""
