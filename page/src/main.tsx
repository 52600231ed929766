import { render } from "preact";
import "./styles/tokens.css";
import "./styles/base.css";
import "./ui/ui.css";
import "./shell/shell.css";
import { startKeyboard } from "./a11y/keyboard";
import { App, startApp } from "./app";
import { startRouter } from "./router";
import { startConnectionWords } from "./shell/banners";
import { startMoments } from "./state/moment";
import { enter } from "./state/session";
import { startTheme } from "./state/settings";
import { startClock } from "./ui/time";

startTheme();
startRouter();
startClock();
startKeyboard();
startConnectionWords();
startApp();
startMoments();
// The session begins while the frame is rendered.
void enter();
render(<App />, document.getElementById("app")!);
