"""What a project defines: modules, imports, classes, helpers. Parsed lazily, chunk by chunk."""
