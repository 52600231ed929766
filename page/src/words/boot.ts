/** Texts of the first frame, for what fails before the page has loaded. */
export const boot = {
  failed: "The page could not be loaded",
  failedHint: "Load it again. If that does not help, see whether the server still runs: “setpoint status” tells.",
} as const;
