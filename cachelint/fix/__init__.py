"""Codemods: each remedy plans from what the check found, and libcst carries the plan out.

A remedy is one module of :mod:`cachelint.fix.remedies`, found by listing the folder. It looks at a file's interpreted
types and their findings and answers with plans (edits at places of the file) and refusals (a sentence that says why).
Planning uses the standard library's trees, which the check made anyway; :mod:`cachelint.fix.rewrite` is the only
module that changes a tree, and :mod:`cachelint.fix.apply` lints the new text before anybody writes it.
"""
