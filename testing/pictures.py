"""Take the pictures of the explorer that the README and the manual show: ``python -m testing.pictures``.

They show ``examples/attention.py`` with one line selected. Needs Chromium and playwright.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright

from examples import attention
from fx_importer import lower

PICTURES = Path(__file__).parents[1] / "docs" / "_static"
SIZE: ViewportSize = {"width": 1280, "height": 720}
COLORS = 96
"""Colors of a picture, which keep it below 100 kB."""

LINE = "weights = torch.softmax"
"""The source line that is selected."""


def take_pictures() -> None:
    """Write ``explorer-light.png`` and ``explorer-dark.png``."""
    model, inputs = attention.build()
    lowered = lower(model, *inputs, output_type="linalg-on-tensors")
    lines = Path(attention.__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, start=1) if LINE in line)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        page_file = Path(directory, "attention.html")
        lowered.report(str(page_file))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(f"{page_file.as_uri()}#source/0/{number}")
            page.wait_for_timeout(500)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(COLORS).save(PICTURES / f"explorer-{scheme}.png", optimize=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    take_pictures()
