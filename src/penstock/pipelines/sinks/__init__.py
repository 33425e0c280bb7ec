"""Where flows end: topics, tables of files, the terminal, a function."""
