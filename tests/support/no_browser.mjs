// What modules of the page read of a browser when they are loaded. Import it before them.
const list = { matches: false, addEventListener() {} };
const storage = { getItem: () => null, setItem() {}, removeItem() {} };
const target = { addEventListener() {}, matchMedia: () => list, location: { hash: "", pathname: "/" } };
Object.assign(globalThis, target, { window: globalThis, localStorage: storage, sessionStorage: storage });
globalThis.document = { addEventListener() {}, documentElement: { dataset: {} } };
