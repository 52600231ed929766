/** A command that a button puts on the line of the terminal. It is never run unasked. */
import { typeInTerminal } from "../../state/terminal";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { toast } from "../../ui/toast";
import { learn as words } from "../../words/learn";

export function Command({ command, run }: { command: string; run: number }) {
  return (
    <div class="learn-command" data-run={run}>
      <pre tabIndex={0}>
        {visible(command)
          .split(/(\s+)/)
          .map((part, index) => (index % 2 ? part : <span key={index}>{part}</span>))}
      </pre>
      <div class="learn-command-buttons">
        <Button small look="primary" title={words.typeTitle(visible(command))} onClick={() => typeInTerminal(command)}>
          <Icon name="terminal" /> {words.type}
        </Button>
        <Button small look="plain" aria-label={words.copy} title={words.copy} onClick={() => void copy(command)}>
          <Icon name="copy" />
        </Button>
      </div>
    </div>
  );
}

async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(words.copied);
  } catch {
    typeInTerminal(text);
  }
}
