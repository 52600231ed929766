import { stored } from "../../state/settings";

/** Whether terminals are read aloud: xterm then keeps its lines as text for screen readers. */
export const screenReader = stored("terminal.read", false);
