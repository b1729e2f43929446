"""Language models: from a Hugging Face folder to tokens generated on an engine.

Raises:
    NotInstalledError: on import, if transformers is not installed.
"""

from __future__ import annotations

from fx_importer.errors import NotInstalledError
from fx_importer.process.optional_packages import is_installed

if not is_installed("transformers"):
    raise NotInstalledError("fx_importer.llm", "transformers", "llm")

from fx_importer.llm.chat import Chat as Chat
from fx_importer.llm.image_model import ImageModel as ImageModel
from fx_importer.llm.imported import import_model as import_model
from fx_importer.llm.language_model import LanguageModel as LanguageModel
from fx_importer.llm.language_model import Score as Score
from fx_importer.llm.loading import engine_for as engine_for
from fx_importer.llm.loading import load as load
from fx_importer.llm.native_library import build as build
from fx_importer.llm.sampling import Sampling as Sampling
from fx_importer.llm.scheduler import Request as Request
from fx_importer.llm.scheduler import Scheduler as Scheduler
from fx_importer.llm.source_model import SourceModel as SourceModel
from fx_importer.llm.speculation import speculate as speculate
from fx_importer.llm.text_stream import Completion as Completion
