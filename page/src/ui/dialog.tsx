import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { shell } from "../words/shell";
import { Button } from "./button";
import { Icon } from "./icon";
import { visible } from "./text";

/** A modal dialog. It is mounted while it is open; Esc and the close button call `close`. The focus returns afterwards. */
export function Dialog(props: { title: string; close(): void; children: ComponentChildren; footer?: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before the next key arrives: it may be the answer.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    return () => {
      element?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      class="dialog"
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        props.close();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) props.close();
      }}
    >
      <header>
        <h2 id={id}>{visible(props.title)}</h2>
        <Button look="plain" aria-label={shell.close} onClick={props.close}>
          <Icon name="close" />
        </Button>
      </header>
      <div class="body" tabIndex={-1}>
        {props.children}
      </div>
      {props.footer ? <footer>{props.footer}</footer> : null}
    </dialog>
  );
}

/** Ask before something that cannot be undone easily. */
export function Confirm(props: {
  title: string;
  action: string;
  danger?: boolean;
  confirm(): void;
  close(): void;
  children: ComponentChildren;
}) {
  return (
    <Dialog
      title={props.title}
      close={props.close}
      footer={
        <>
          <Button onClick={props.close}>{shell.cancel}</Button>
          <Button look={props.danger ? "danger primary" : "primary"} autoFocus onClick={props.confirm}>
            {props.action}
          </Button>
        </>
      }
    >
      {props.children}
    </Dialog>
  );
}
