"""The native engine: a client's whole local round in C++, outside of the interpreter's lock.

`program.py` turns a module into a list of layers, `extension.py` into a compiled program; `engine.py` hands rounds and
batches to it, `passes.py` frozen models' samples. In C++, `lanes.h` is one register, `kernels.*` the arithmetic on many
of them, `program.*` the list of layers, `rounds.*` the order of a step, `binding.cpp` the border to Python. Read them
in this order. The extension is optional: without it there is no native engine, and everything else is as it was.
"""
