"""Record batches to Arrow and back, against the plain decoder as an oracle."""
