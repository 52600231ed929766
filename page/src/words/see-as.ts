/** Texts of acting as another user. */
export const seeAs = {
  title: "See as another user",
  open: "See as another user…",
  about: (user: string) =>
    `This tab then reads and writes with the rights of another user, and shows what this user would see. ` +
    `The server checks that ${user || "you"} may impersonate them, and records both names.`,
  user: "User, or service account",
  groups: "Groups (optional)",
  groupsHint: "Separated by commas. Without groups, a service account has those of all service accounts, and any other user has none of their own.",
  begin: "See as this user",
  end: "Back to your own user",
  missing: "Name a user first.",
  refused: "A name has 1 to 256 printable ASCII characters, and there may be 32 groups.",
  banner: (user: string) => `You see this cluster as ${user}`,
  bannerGroups: (groups: readonly string[]) => ` in ${groups.length === 1 ? "the group" : "the groups"} ${groups.join(", ")}`,
  bannerMore: "What you do in this tab is done as this user, and the server records both names.",
  key: "See as another user",
} as const;
