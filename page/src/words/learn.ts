/** Texts of the view Learn. */
export const learn = {
  feature: "lessons",
  minutes: (count: number) => `${count} min`,
  progress: (met: number, total: number) => `${met} of ${total} done`,
  done: "Done",
  problems: "Some files of this course cannot be used:",
  none: "There are no lessons",
  noneHint: "The folder of your lessons is empty. “setpoint lesson new NAME” writes a first one.",
  total: (done: number, all: number) => `${done} of ${all} lessons done`,
  export: "Export progress",
  import: "Import progress",
  imported: (count: number) => (count === 1 ? "The progress in 1 lesson was read." : `The progress in ${count} lessons was read.`),
  leftOut: (count: number) =>
    count === 1 ? "1 file was left out: it is too large, or no text." : `${count} files were left out: they are too large, or no text.`,
  notProgress: "This file is not an export of progress.",
  drop: "Open a lesson file",
  dropHint: "Or drop a lesson (.md) here to try it.",
  tooLarge: "The file is too large for a lesson.",

  all: "All lessons",
  number: (number: number, minutes: number) => `Lesson ${number} · about ${minutes} minutes`,
  opening: "The lesson's cluster starts.",
  elsewhere: "The page shows another cluster than the one of this lesson.",
  goThere: "Show the lesson's cluster",
  reset: "Start over",
  resetTitle: "Start this lesson over?",
  resetText: "Its cluster and its files begin again as they were, and the progress of this lesson is forgotten.",
  resetDone: "The lesson begins again, in a new cluster.",
  next: "Next lesson",
  finished: "Everything in this lesson is done.",
  finishedLast: "Everything is done, and this was the last lesson.",
  lost: "The lesson is not connected to the server. It goes on by itself when the connection is back.",

  type: "Type",
  typeTitle: (command: string) => `Put this on the line of the terminal: ${command}`,
  copy: "Copy",
  copied: "Copied.",
  fails: "This will be refused.",
  file: (name: string) => `The file ${name} is in your folder.`,
  edit: "Edit",

  check: "Task",
  met: (text: string) => `Done: ${text}`,
  open: "Not done yet",
  hint: "Hint",
  moreHint: "Another hint",
  offer: "Stuck? There is a hint.",

  question: "Question",
  answer: "Answer",
  tryAgain: "Try again",
  reveal: "Reveal answer",
  right: "Right.",
  wrong: "Not quite.",
  rightAnswer: "The right answer:",
  yourAnswer: "Your answer",
  chooseMany: "Choose all that are right.",
  chooseOrder: "Put the steps in order.",
  up: (text: string) => `Move up: ${text}`,
  down: (text: string) => `Move down: ${text}`,

  predict: "Predict first",
  predicted: "That is my prediction",
  seeIt: "Now see for yourself:",
  waitingForOutcome: "When it has happened, your prediction is compared with what you see.",
  compareRight: "You predicted this rightly.",
  compareWrong: "It turned out differently.",

  hintTitle: "A hint",

  fault: (text: string) => {
    const [target = "", action = "", name = ""] = text.split(" ");
    if (target === "node") {
      return { stop: `Switch ${name} off`, partition: `Cut ${name} off`, start: `Switch ${name} on again` }[action] ?? text;
    }
    return action === "stop" ? `Stop the ${target}` : `Start the ${target}`;
  },
  faultDone: "It has happened.",
  componentState: (name: string, running: boolean) => `The ${name} ${name === "controllers" ? (running ? "run" : "are stopped") : running ? "runs" : "is stopped"}.`,

  operator: (name: string) => `The operator ${name}`,
  operatorRuns: "It runs.",
  operatorStopped: "It does not run.",
  operatorStart: "Start the operator",
  operatorStop: "Stop the operator",

  show: (view: string) => `Show ${view}`,
  solution: "Show the solution",
  solutionWait: (check: string) => `wait until: ${check}`,

  side: "The lesson's cluster",
  sideViews: { chain: "Chain", objects: "Objects", loops: "Loops", timeline: "Timeline", fleet: "Fleet" } as Record<string, string>,
};
