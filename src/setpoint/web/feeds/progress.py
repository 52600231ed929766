"""The conversation `progress`: exports the user's progress in all lessons, or imports an export.

It is opened with `{"export": true}`, and answers `{"export": {...}}`; or with `{"import": {...}}`, and answers
`{"imported": 3}`; or with `{"forget": "loop"}`, and answers `{"forgot": "loop"}`. Then it ends.
"""

from __future__ import annotations

from setpoint.meta.errors import BadRequest
from setpoint.web.feed import Args, Conversation, PageContext, text_argument
from setpoint.web.lessons.library import library_of


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    library = library_of(ctx)
    records = library.progress(ctx.user)
    if "import" in args:
        try:
            count = records.load_export(args["import"])
        except ValueError as error:
            raise BadRequest(str(error)) from None
        library.notify()
        await conversation.send({"imported": count})
    elif "forget" in args:
        lesson = text_argument(args, "forget")
        if library.courses.find(lesson) is None:
            raise BadRequest(f"there is no lesson {lesson[:60]!r}")
        records.remove(lesson)
        library.notify()
        await conversation.send({"forgot": lesson})
    else:
        await conversation.send({"export": records.export()})
