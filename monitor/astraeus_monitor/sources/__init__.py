"""What is read about a worker, one file per source. Records in, clocks out; the reading is done elsewhere."""
