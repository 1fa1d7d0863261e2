"""The native engine: a client's whole local round in C++, outside of the interpreter's lock.

`program.py` turns a module into a list of layers; `engine.py` hands a round to the compiled program. In C++,
`lanes.h` is one register, `kernels.*` the arithmetic on many of them, `program.*` the order of a step, `binding.cpp`
the border to Python. Read them in this order. The extension is optional: without it there is no native engine, and
everything else is as it was.
"""
