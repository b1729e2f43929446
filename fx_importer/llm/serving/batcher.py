"""A thread that runs a scheduler for coroutines that await text."""

from __future__ import annotations

import asyncio
import copy
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fx_importer.llm.paged_model import PagedModel
from fx_importer.llm.scheduler import Request, Scheduler
from fx_importer.llm.text_stream import TextStream

MAX_SEQUENCES = 256
"""The most sequences that run or wait."""
MAX_PROMPT_TOKENS = 2**22
"""The most tokens of their prompts, in memory at about 40 bytes each."""


@dataclass(frozen=True)
class Piece:
    """New text of one sequence of a `Generation`."""

    index: int
    """The index of the sequence."""
    text: str
    finished: str | None = None
    """``"stop"`` or ``"length"`` if the text is complete."""
    error: BaseException | None = None
    """The error that ended all texts of the generation."""


class Disconnected(Exception):
    """The client disconnected."""


class QueueFull(Exception):
    """The sequences that run or wait leave no room for more."""


class Generation:
    """Several texts generated together for one event loop.

    Args:
        batcher: the batcher that runs them.
        requests: one request per text, from `Scheduler.request`.
        stop: strings that end a text.

    Raises:
        QueueFull: if too many sequences run or wait.
    """

    def __init__(self, batcher: Batcher, requests: Sequence[Request], stop: Sequence[str]):
        self.requests = list(requests)
        self.streams = [TextStream(batcher.tokenizer, stop) for _ in requests]
        self._batcher = batcher
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self._open = len(self.requests)
        batcher.submit(self)

    async def next(self) -> Piece | None:
        """Return the next piece of any text; None if all have ended. Errors of the engine are raised here."""
        if not self._open:
            return None
        piece = await self._pieces.get()
        if piece.error is not None:
            self._open = 0
            raise piece.error
        self._open -= piece.finished is not None
        return piece

    def cancel(self) -> None:
        """End all unfinished texts, and free their pages."""
        self._batcher.cancel(self)

    def abandon(self) -> None:
        """End the texts, and make `next` raise `Disconnected`."""
        self.cancel()
        self._pieces.put_nowait(Piece(0, "", error=Disconnected()))

    @property
    def usage(self) -> dict[str, int]:
        """The token counts in the API's format. A prompt counts once per text."""
        prompt, new = (
            sum(len(request.prompt) for request in self.requests),
            sum(len(request.tokens) for request in self.requests),
        )
        return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}

    def put(self, piece: Piece) -> None:
        """Pass a piece from the batcher's thread to the event loop."""
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the event loop is closed
            self._open = 0


class Batcher:
    """Runs a scheduler in its own thread. Other threads queue commands, which run between two steps."""

    def __init__(self, model: PagedModel):
        self.model = model
        self.tokenizer = copy.deepcopy(model.tokenizer)
        """A copy for this thread, since tokenizers are not thread-safe."""
        self.scheduler = Scheduler(model)
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._texts: dict[Request, tuple[Generation, int]] = {}
        self._counting = threading.Lock()
        self._sequences = self._prompt_tokens = 0
        """Of all requests that were submitted and have not ended."""
        self._thread = threading.Thread(target=self._run, name="fx-importer-batcher", daemon=True)
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        """Queue the requests of ``generation``. Raises `QueueFull`."""
        tokens = sum(len(request.prompt) for request in generation.requests)
        with self._counting:
            if self._sequences + len(generation.requests) > MAX_SEQUENCES:
                raise QueueFull(f"{self._sequences} sequences run or wait, and at most {MAX_SEQUENCES} may")
            if self._sequences and self._prompt_tokens + tokens > MAX_PROMPT_TOKENS:
                raise QueueFull(f"{self._prompt_tokens} prompt tokens wait, and at most {MAX_PROMPT_TOKENS} may")
            self._sequences += len(generation.requests)
            self._prompt_tokens += tokens

        def command() -> None:
            for index, request in enumerate(generation.requests):
                self._texts[request] = generation, index
                self.scheduler.enqueue(request)

        self._commands.put(command)

    def cancel(self, generation: Generation) -> None:
        """End the requests of ``generation``."""

        def command() -> None:
            for request in generation.requests:
                self._end(request)

        self._commands.put(command)

    def close(self) -> None:
        """Stop the thread after its current step."""
        self._commands.put(None)
        self._thread.join()

    def _end(self, request: Request) -> None:
        self.scheduler.cancel(request)
        if self._texts.pop(request, None) is not None:
            with self._counting:
                self._sequences -= 1
                self._prompt_tokens -= len(request.prompt)

    def _run(self) -> None:
        while self._obey():
            try:
                chosen = self.scheduler.step()
            except Exception as error:  # report it to all waiting clients
                self._fail(error)
                continue
            for request, token in chosen:
                if request in self._texts:
                    self._add(request, token)
            for request in [request for request in self._texts if request.error is not None]:
                generation, index = self._texts[request]
                generation.put(Piece(index, "", error=request.error))
                for waiting in generation.requests:
                    self._end(waiting)

    def _obey(self) -> bool:
        """Run queued commands, and wait for more while the scheduler is idle. Return False to stop the thread."""
        while self.scheduler.is_idle or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            command()
        return True

    def _add(self, request: Request, token: int) -> None:
        generation, index = self._texts[request]
        stream = generation.streams[index]
        ends = token in self.model.settings.stop_tokens
        text = stream.end() if ends else stream.add(token)
        finished = "stop" if stream.done else "length" if request.done else None
        if finished == "length":
            text += stream.rest()
        if finished is not None:
            self._end(request)
        if text or finished is not None:
            generation.put(Piece(index, text, finished))

    def _fail(self, error: Exception) -> None:
        texts = list(self._texts.items())
        for request, _ in texts:
            self._end(request)
        for generation in {id(stream): stream for _, (stream, _) in texts}.values():
            generation.put(Piece(0, "", error=error))
