// The side of the page in the conversation of a terminal, without a browser: `terminal_tab.py` tells it what happens.
// Each line of the input is an event, and is answered by the messages that the page sends to the server.
import { createInterface } from "node:readline";
import { TerminalConversation } from "../../page/src/dock/terminal/conversation";

let said = [];
let drawn = [];
let conversation;

function begin() {
  said = [];
  drawn = [];
  const screen = {
    cols: 80,
    rows: 24,
    options: {},
    buffer: { active: { cursorX: 0 } },
    // xterm parses what is written later.
    write: (text, parsed) => void (parsed && drawn.push(parsed)),
  };
  conversation = new TerminalConversation(screen, [], { say: (data) => said.push(data) });
  conversation.begin();
}

const events = {
  begin,
  keys: (data) => conversation.take(data),
  receive: (message) => conversation.receive(message),
  draw: () => {
    for (const parsed of drawn.splice(0)) parsed();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [event, data] = JSON.parse(line);
  events[event](data);
  await new Promise(setImmediate);
  process.stdout.write(`${JSON.stringify(said.splice(0))}\n`);
}
