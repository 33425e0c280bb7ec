"""Record batches to Arrow columns and back, without a Python object per record."""
