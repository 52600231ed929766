/** Draws the tree of a text. There is no HTML in it: everything is an element or a text. */
import type { ComponentChildren, JSX } from "preact";
import { linkTo } from "../../router";
import { visible } from "../../ui/text";
import { current } from "./session";
import type { Block, Inline } from "./tree";

export function Blocks({ blocks }: { blocks: Block[] }) {
  return (
    <>
      {blocks.map((block, index) => (
        <OneBlock key={index} block={block} />
      ))}
    </>
  );
}

function OneBlock({ block }: { block: Block }): JSX.Element {
  switch (block.type) {
    case "heading": {
      const Tag = `h${Math.min(block.level + 1, 6)}` as "h3";
      return (
        <Tag>
          <Inlines inline={block.inline} />
        </Tag>
      );
    }
    case "paragraph":
      return (
        <p>
          <Inlines inline={block.inline} />
        </p>
      );
    case "list": {
      const items: ComponentChildren = block.items.map((item, index) => (
        <li key={index}>{item.length === 1 && item[0]!.type === "paragraph" ? <Inlines inline={item[0]!.inline} /> : <Blocks blocks={item} />}</li>
      ));
      return block.ordered ? <ol start={block.start ?? 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case "code":
      return (
        <pre class="learn-code" tabIndex={0}>
          {visible(block.text)}
        </pre>
      );
    case "table":
      return (
        <div class="learn-table" tabIndex={0}>
          <table>
            <thead>
              <tr>
                {block.head.map((cell, index) => (
                  <th key={index} scope="col">
                    <Inlines inline={cell} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {block.rows.map((row, index) => (
                <tr key={index}>
                  {row.map((cell, at) => (
                    <td key={at}>
                      <Inlines inline={cell} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    case "quote":
      return (
        <blockquote>
          <Blocks blocks={block.blocks} />
        </blockquote>
      );
    default:
      return <hr />;
  }
}

export function Inlines({ inline }: { inline: Inline[] }) {
  return (
    <>
      {inline.map((one, index) =>
        typeof one === "string" ? visible(one) : <OneInline key={index} one={one} />,
      )}
    </>
  );
}

function OneInline({ one }: { one: Exclude<Inline, string> }): JSX.Element {
  switch (one.type) {
    case "code":
      return <code>{visible(one.text)}</code>;
    case "strong":
      return (
        <strong>
          <Inlines inline={one.inline} />
        </strong>
      );
    case "emphasis":
      return (
        <em>
          <Inlines inline={one.inline} />
        </em>
      );
    case "image":
      return <Picture source={one.source} alt={one.alt} />;
    default:
      return <Link href={one.href}>{one.inline}</Link>;
  }
}

function Picture({ source, alt }: { source: string; alt: string }) {
  const data = current.value?.images[source];
  return data?.startsWith("data:image/") ? <img class="learn-picture" src={data} alt={visible(alt)} /> : <em>{visible(alt)}</em>;
}

function Link({ href, children }: { href: string; children: Inline[] }) {
  if (href.startsWith("lesson:")) {
    const target = linkTo({ view: "learn", kind: null, name: "", params: { lesson: href.slice("lesson:".length) } });
    return (
      <a href={target}>
        <Inlines inline={children} />
      </a>
    );
  }
  if (!/^https?:\/\//.test(href)) return <Inlines inline={children} />;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer">
      <Inlines inline={children} /> <span class="faint">({new URL(href).host})</span>
    </a>
  );
}
