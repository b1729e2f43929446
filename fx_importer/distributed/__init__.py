"""Programs of several devices: meshes, process groups and the collective operators between them.

Names are imported when they are first used: meshes do not need torch.distributed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
