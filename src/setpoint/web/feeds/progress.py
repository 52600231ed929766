"""The conversation `progress`: exports the user's progress in all lessons with the files, or imports an export.

It is opened with `{"export": true}`, and answers `{"export": {...}, "leftOut": 0}`; or with `{"import": {...}}`, and
answers `{"imported": 3, "leftOut": 0}`; or with `{"forget": "loop"}`, and answers `{"forgot": "loop"}`. Then it ends.
`leftOut` is the number of files that are too large or no text.
"""

from __future__ import annotations

from setpoint.meta.errors import BadRequest
from setpoint.web.feed import Args, Conversation, PageContext, text_argument
from setpoint.web.lessons.files import LessonFiles, files_in
from setpoint.web.lessons.library import library_of
from setpoint.web.workspace import PART, Workspaces


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    library = library_of(ctx)
    records = library.progress(ctx.user)
    workspaces = ctx.parts.get(PART)
    files = LessonFiles(workspaces if isinstance(workspaces, Workspaces) else Workspaces(), library.courses, ctx.user)
    if "import" in args:
        try:
            sent = files_in(args["import"])
            count = records.load_export(args["import"])
        except ValueError as error:
            raise BadRequest(str(error)) from None
        left_out = files.save(sent)
        library.notify()
        await conversation.send({"imported": count, "leftOut": left_out})
    elif "forget" in args:
        lesson = text_argument(args, "forget")
        if library.courses.find(lesson) is None:
            raise BadRequest(f"there is no lesson {lesson[:60]!r}")
        records.remove(lesson)
        library.notify()
        await conversation.send({"forgot": lesson})
    else:
        export = records.export()
        await conversation.send({"export": export, "leftOut": files.add_to(export)})
