"""Engines: one folder each, which ends in a record (`Engine`), and the table of them.

``__init__.pyi`` lists the names. Each is imported when it is first used: the table needs no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
