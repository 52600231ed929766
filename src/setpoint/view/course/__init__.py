"""Courses and lessons as values: text, tasks, checks and quizzes, read from Markdown files.

Callers may rely on these guarantees:
- reading a lesson never runs anything in it, and never fails for another reason than `InvalidLesson`, which names the
  file and the line of every problem;
- the size of a lesson, its nesting and the cost of its checks are bounded;
- the tree of a text has plain values only, and no HTML: what looks like HTML is text. Links lead to http, https or
  another lesson; the name of a file has no path.

`markdown.py` reads text, `lesson.py` a lesson with its blocks, `checks.py` evaluates checks over facts about a cluster.
"""
