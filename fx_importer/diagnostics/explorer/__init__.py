"""The explorer: a page, and JSON, that link source lines with the IR after each stage."""

from fx_importer.diagnostics.explorer.contents import SCHEMA_VERSION, Contents, contents_of
from fx_importer.diagnostics.explorer.page import Report, html_page, json_text
from fx_importer.diagnostics.explorer.recorder import Recorder

__all__ = ["SCHEMA_VERSION", "Contents", "Recorder", "Report", "contents_of", "html_page", "json_text"]
